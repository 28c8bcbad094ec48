//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/holdfast-go/holdfast/backend"
)

func ownFolder() (string, error) { return "", errNoFolder }

func machineClock() (backend.Finding, error) { return backend.Finding{}, errors.ErrUnsupported }

// endWithParent does nothing here: the command outlives a holdfast that is killed.
func endWithParent(*syscall.SysProcAttr) bool { return false }

// signsOfLife are what a command inherits so that the store does not take us for gone while it is
// at work. No store here asks whether we are.
func signsOfLife(backend.Backend) []*os.File { return nil }
