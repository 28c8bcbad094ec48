package config

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxSize is how long a file may be. The longest that makes sense is a hundredth of it.
const maxSize = 1 << 20

// read takes what the file sets.
func (l *loader) read() {
	data, err := readFile(l.path)
	if err != nil {
		l.fail(origin{}, "", err)
		return
	}
	root, at, err := parse(data)
	if err != nil {
		l.fail(at, "", err)
		return
	}
	l.section(root, "")
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		var pathErr *fs.PathError // names the path again
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, invalid("is a directory, not a file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1)) // not by its size: a device or pipe has none
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxSize:
		return nil, invalid("is over " + strconv.Itoa(maxSize>>20) + " MiB, which is no configuration of locks")
	}
	return data, nil
}

// parse returns the only document in data. Aliases are not followed, so nothing grows.
func parse(data []byte) (root *yaml.Node, at origin, err error) {
	defer func() {
		if recover() != nil { // the library has "internal error" panics; a file must not take the program down
			root, err = nil, invalid("is not valid YAML")
		}
	}()
	if at, err := readable(data); err != nil {
		return nil, at, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(unescapeSlashes(data)))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		at, err := syntax(data, err)
		return nil, at, err
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || null(doc.Content[0]) {
		return nil, at, invalid("is empty")
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, origin{line: second.Line}, invalid("begins a second YAML document; there must be one")
	case !errors.Is(err, io.EOF):
		at, err := syntax(data, err)
		return nil, at, err
	}
	return doc.Content[0], at, nil
}
