//go:build !linux

package filebackend

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"

	"github.com/holdfast-go/holdfast/backend"
)

func init() { backend.Register("file", open) }

// open says why there is no file:// here.
func open(context.Context, *url.URL) (backend.Backend, error) {
	return nil, fmt.Errorf("%w: file:// needs flock, inotify and the boot clock of Linux, "+
		"and this is %s", errors.ErrUnsupported, runtime.GOOS)
}
