package main

import (
	"os"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/filebackend"
)

// signsOfLife are what a command inherits so that the store does not take us for gone while it is
// at work: the kernel kills it when we are killed, but after it has told others that we ended.
func signsOfLife(b backend.Backend) []*os.File {
	if f, ok := b.(*filebackend.Backend); ok {
		return []*os.File{f.Process()}
	}
	return nil
}
