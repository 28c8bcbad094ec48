package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSize is how long a file may be. The longest that makes sense is a hundredth of it.
const maxSize = 1 << 20

// read takes what the file sets.
func (l *loader) read() {
	data, err := readFile(l.Path)
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err // without the path, which Error names
	}
	if err != nil {
		l.fail(origin{}, "", err)
		return
	}
	switch root, at, err := parse(data); {
	case err != nil:
		l.fail(at, "", err)
	case aliased(root):
		l.refuse(root, "", noAlias)
	default:
		l.section(root, "")
	}
}

// readFile returns what is in the file: not by its size, as a device or pipe has none.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, invalid("is a directory, not a file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if len(data) > maxSize {
		err = invalid("is over " + strconv.Itoa(maxSize>>20) +
			" MiB, which is no configuration of locks")
	}
	return data, err
}

// escaped is a backslash with what it escapes. JSON may write / as \/, and some encoders do, but
// the YAML library does not know it.
var escaped = pattern(`(\\[^/])|\\(/)`)

// pattern compiles expr when it is first needed, as most programs start without a file.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// parse returns the only document in data; with an error, the line of it. The library's nodes are
// walked here, and not decoded: its strict decoding (KnownFields) names Go types and quotes values,
// which may be secrets, and its nodes have the lines. Aliases are not followed, so nothing grows.
func parse(data []byte) (root *yaml.Node, at origin, err error) {
	defer func() {
		// The library has "internal error" panics; a file must not take the program down.
		if recover() != nil {
			root, at, err = nil, origin{}, invalid("is not valid YAML")
		}
	}()
	if at, err := readable(string(data)); err != nil {
		return nil, at, err
	}
	if json.Valid(data) {
		data = escaped().ReplaceAll(data, []byte("$1$2"))
	}
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err = decoder.Decode(&doc); err == nil {
		err = decoder.Decode(&second)
	}
	switch {
	case err == nil:
		return nil, origin{line: second.Line},
			invalid("begins a second YAML document; there must be one")
	case !errors.Is(err, io.EOF):
		at, err = syntax(string(data), err)
		return nil, at, err
	case doc.Kind == 0 || len(doc.Content) == 0 || null(doc.Content[0]):
		return nil, origin{}, invalid("is empty")
	}
	return doc.Content[0], origin{}, nil
}

// readable refuses what is no text, of which the YAML library does not say the line.
func readable(text string) (origin, error) {
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			return lineAt(text, i), invalid("is not UTF-8")
		case r < ' ' && !strings.ContainsRune("\t\r\n", r), r == 0x7f:
			return lineAt(text, i), invalid("has a control character")
		}
	}
	return origin{}, nil
}

const inBrackets = " (inside of {} and [], ${…} needs quotes)"

// quote is the hint for a value that YAML takes for something else.
func quote(what string) string { return " (a value " + what + " needs quotes)" }

// complaints are the texts of the YAML library that are passed on, each with what a user has to
// know besides. It has others, some of which quote the file, and newer versions may do so in more.
var complaints = map[string]string{
	"did not find expected key":                              "",
	"did not find expected ',' or '}'":                       inBrackets,
	"did not find expected ',' or ']'":                       inBrackets,
	"did not find expected '-' indicator":                    "",
	"did not find expected node content":                     "",
	"did not find expected <document start>":                 "",
	"found undefined tag handle":                             quote("that begins with !"),
	"could not find expected ':'":                            "",
	"mapping values are not allowed in this context":         quote("with a colon and a space"),
	"found character that cannot start any token":            quote("that begins with @, ` or %"),
	"found unexpected end of stream":                         " (is a quote left open?)",
	"found unexpected document indicator":                    " (is a quote left open?)",
	"found unknown escape character":                         ` (in double quotes, \ has to be \\)`,
	"found invalid Unicode character escape code":            "",
	"found unknown directive name":                           quote("that begins with %"),
	"did not find expected alphabetic or numeric character":  quote("that begins with & or *"),
	"block sequence entries are not allowed in this context": "",
}

// parserError are those of its parser, which counts lines from 0, and its scanner from 1.
var parserError = pattern(`^did not find expected [^a]|^found undefined tag handle`)

// What is looked for in an error of the library, and in a file where it found one. A tab that
// indents is looked for first, as what the library says of it depends on what stands before.
var (
	libraryError  = pattern(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = pattern(`^unknown anchor '(.*)' referenced$`)
	tabIndent     = pattern(`(?m)^ *\t[ \t]*[^\s#]`)
)

// syntax is the library's error with a better line and without what it may quote. The line is where
// it noticed: mostly the one, sometimes the one behind, or where the list or mapping begins.
func syntax(text string, err error) (origin, error) {
	const prefix = "is not valid YAML"
	m := libraryError().FindStringSubmatch(err.Error())
	if m == nil {
		return origin{}, invalid(prefix)
	}
	if tab := tabIndent().FindStringIndex(text); tab != nil &&
		!strings.HasPrefix(strings.TrimSpace(text), "{") {
		return lineAt(text, tab[0]),
			invalid(prefix + ": the line is indented with a tab; use spaces")
	}
	if name := unknownAnchor().FindStringSubmatch(m[2]); name != nil {
		at := lineAt(text, max(0, strings.Index(text, "*"+name[1])))
		return at, invalid(noAlias + quote("that begins with & or *"))
	}
	line, _ := strconv.Atoi(m[1])
	hint, known := complaints[m[2]]
	if !known {
		return origin{line: line}, invalid(prefix)
	}
	if line == 0 || parserError().MatchString(m[2]) {
		line++
	}
	last := lineAt(text, len(strings.TrimRight(text, "\r\n"))).line
	return origin{line: min(line, last)}, invalid(prefix + ": " + m[2] + hint)
}

// lineAt is the line that an offset is in.
func lineAt(text string, offset int) origin {
	return origin{line: 1 + strings.Count(text[:offset], "\n")}
}
