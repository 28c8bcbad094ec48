//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/history"
)

// A register is in a file that all processes share, beside the store: a number that a token
// protects.
type register struct {
	Token  uint64 // the newest that came
	Value  int
	Writes int // that were admitted
}

// admit lets in who reads, so that no older holder writes afterwards.
func (f *register) admit(token uint64) bool {
	if token < f.Token {
		return false
	}
	f.Token = token
	return true
}

func (f *register) write(token uint64, value int) bool {
	if !f.admit(token) {
		return false
	}
	f.Value = value
	f.Writes++
	return true
}

// wrong is an error if an update was lost: everybody who wrote added one to what he had read.
func (f *register) wrong() error {
	if f.Value != f.Writes {
		return fmt.Errorf(history.Broken+
			"%d writes were let in, and the value is %d: two holders wrote over each other",
			f.Writes, f.Value)
	}
	return nil
}

// withRegister changes the register at path, alone, and returns it as it is then.
func withRegister(path string, change func(f *register)) (f register, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return f, err
	}
	defer file.Close() // and with it the lock
	for {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return f, err
	}
	const size = 128 // written at once, so that a kill leaves no half of it
	text := make([]byte, size)
	if n, _ := file.ReadAt(text, 0); n > 0 {
		if err := json.Unmarshal(text[:n], &f); err != nil {
			return f, err
		}
	}
	change(&f)
	text, err = json.Marshal(f)
	if err != nil {
		return f, err
	}
	_, err = file.WriteAt(fmt.Appendf(nil, "%-*s", size, text), 0)
	return f, err
}
