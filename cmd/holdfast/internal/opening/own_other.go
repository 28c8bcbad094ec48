//go:build !linux

package opening

// OwnFolder is [ErrNoFolder].
func OwnFolder() (string, error) { return "", ErrNoFolder }
