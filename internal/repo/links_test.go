package repo

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestLinks follows every relative link of every page, into the page's headings too.
func TestLinks(t *testing.T) {
	report(t, checkLinks(tree()))
}

var (
	linkForm    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	headingForm = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	schemeForm  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	codeForm    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

func checkLinks(tree fs.FS) (faults []string) {
	for _, page := range files(tree) {
		if path.Ext(page) != ".md" {
			continue
		}
		text := codeForm.ReplaceAllString(read(tree, page), "")
		for _, m := range linkForm.FindAllStringSubmatch(text, -1) {
			if schemeForm.MatchString(m[1]) {
				continue
			}
			if why := follow(tree, page, m[1]); why != "" {
				if f := fmt.Sprintf("%s links to %s: %s", page, m[1], why); !slices.Contains(faults,
					f) {
					faults = append(faults, f)
				}
			}
		}
	}
	return faults
}

func follow(tree fs.FS, page, link string) (why string) {
	name, anchor, _ := strings.Cut(link, "#")
	target := page
	if name != "" {
		target = path.Join(path.Dir(page), name)
	}
	if strings.HasPrefix(name, "/") || !fs.ValidPath(target) {
		return "not a path inside the tree"
	}
	if _, err := fs.Stat(tree, target); err != nil {
		return "does not exist"
	}
	if anchor == "" || path.Ext(target) != ".md" {
		return ""
	}
	for _, h := range headingForm.FindAllStringSubmatch(read(tree, target), -1) {
		if slug(h[1]) == anchor {
			return ""
		}
	}
	return "there is no such heading"
}

// slug is how GitHub makes an anchor of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(heading))
}

func TestLinksCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"README.md": "# Top\n[a](docs/a.md) [b](docs/b.md) [t](#top) [n](#nope) " +
			"[w](https://example.org/x) `[c](code.md)`",
		"docs/a.md": "## What `it` is, now\n[up](../README.md) [x](../x.go#L3) " +
			"[h](a.md#what-it-is-now) [g](../README.md#gone) [out](../../etc) [abs](/etc/passwd)",
		"x.go":        "package x",
		"docs/c.md":   "```\n[d](d.md)\n```\n[dir](../docs)",
		"docs/not.go": "[z](z.md)",
	})
	expect(t, checkLinks(tree), "docs/b.md: does not exist", "#nope: there is no",
		"README.md#gone: there is no",
		"../../etc: not a path", "/etc/passwd: not a path")
}
