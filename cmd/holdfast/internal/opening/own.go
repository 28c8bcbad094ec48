package opening

import (
	"errors"
	"net/url"

	"github.com/holdfast-go/holdfast/locker/config"
)

// ErrNoFolder is of systems on which no folder keeps locks.
var ErrNoFolder = errors.New("a folder keeps locks on Linux only")

// FileURL is the URL of a folder as a store.
func FileURL(dir string) (config.URL, error) {
	return config.ParseURL((&url.URL{Scheme: "file", Path: dir}).String())
}
