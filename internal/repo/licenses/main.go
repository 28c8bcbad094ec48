// Command licenses copies the license of each module that a program is linked from into a folder,
// for those who give the program away: licenses DIR PACKAGE. It fails if a module has none, or one
// of another kind than those listed here, which ask for no more than their own text.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kinds tells licenses that a program under MIT may be linked with by a sentence of each.
var kinds = []struct{ name, sentence string }{
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD", "Redistribution and use in source and binary forms, with or without modification, " +
		"are permitted"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose " +
		"with or without fee"},
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
}

// systems are those of .goreleaser.yaml: a module may be needed on one of them only.
var systems = []string{"linux", "darwin", "windows"}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: licenses DIR PACKAGE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// A part is a module, or Go's standard library.
type part struct{ Path, Dir string }

func run(ctx context.Context, dir, pkg string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	parts := []part{{"go", strings.TrimSpace(string(root))}}
	for _, system := range systems {
		list := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", pkg)
		list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		if parts, err = modules(parts, string(out)); err != nil {
			return err
		}
	}
	var faults []error
	for _, p := range parts {
		kind, err := save(filepath.Join(dir, filepath.FromSlash(p.Path)), p.Dir)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", p.Path, err))
			continue
		}
		fmt.Printf("%-10s %s\n", kind, p.Path)
	}
	return errors.Join(faults...)
}

// modules adds those that list names, except for those of go.work.
func modules(parts []part, list string) ([]part, error) {
	for packages := json.NewDecoder(strings.NewReader(list)); ; {
		var p struct {
			Module *struct {
				part
				Main bool
			}
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			return parts, nil
		} else if err != nil {
			return nil, err
		}
		if p.Module != nil && !p.Module.Main && !slices.Contains(parts, p.Module.part) {
			parts = append(parts, p.Module.part)
		}
	}
}

var fileForm = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.\w+)?$`)

// save copies the license files of the module in from to the folder to, and says of which kind its
// license is.
func save(to, from string) (kind string, err error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() || !fileForm.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return "", err
		}
		if found := kindOf(string(text)); found != "" {
			kind = found
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), text, 0o644); err != nil {
			return "", err
		}
	}
	if kind == "" {
		return "", errors.New("no license that is known here; read it, and add its kind to " +
			"internal/repo/licenses, or do without the module")
	}
	return kind, nil
}

// kindOf is "" of a text that has none of the sentences, however it is folded.
func kindOf(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, k := range kinds {
		if strings.Contains(text, k.sentence) {
			return k.name
		}
	}
	return ""
}
