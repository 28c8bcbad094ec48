package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// noAlias is why anchors are refused.
const noAlias = "anchors, aliases and merge keys are not supported; write the value out"

// readable refuses what is no text, of which the YAML library does not say the line.
func readable(data []byte) (origin, error) {
	line := 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return origin{line: line}, invalid("is not UTF-8")
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return origin{line: line}, invalid("has a control character")
		case r == '\n':
			line++
		}
		rest = rest[size:]
	}
	return origin{}, nil
}

// unescapeSlashes turns the \/ of a JSON file into /. Both are the same there, some encoders write
// the former, and the YAML library does not know it.
func unescapeSlashes(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\/`)) || !json.Valid(data) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ { // in valid JSON a backslash is always followed by what it escapes
		if data[i] == '\\' {
			i++
			if data[i] != '/' {
				out = append(out, '\\')
			}
		}
		out = append(out, data[i])
	}
	return out
}

// A complaint is a text of the YAML library that is passed on. It has others, some of which quote
// the file, and newer versions may do so in more.
type complaint struct {
	hint     string // what a user has to know besides
	offByOne bool   // the library's parser counts lines from 0, its scanner from 1
}

var complaints = map[string]complaint{
	"did not find expected key":                      {offByOne: true},
	"did not find expected ',' or '}'":               {" (inside of {} and [], ${…} needs quotes)", true},
	"did not find expected ',' or ']'":               {" (inside of {} and [], ${…} needs quotes)", true},
	"did not find expected '-' indicator":            {offByOne: true},
	"did not find expected node content":             {offByOne: true},
	"did not find expected <document start>":         {offByOne: true},
	"found undefined tag handle":                     {" (a value that begins with ! needs quotes)", true},
	"could not find expected ':'":                    {},
	"mapping values are not allowed in this context": {hint: " (a value with a colon and a space needs quotes)"},
	"found character that cannot start any token":    {hint: " (a value that begins with @, ` or % needs quotes)"},
	"found unexpected end of stream":                 {hint: " (is a quote left open?)"},
	"found unexpected document indicator":            {hint: " (is a quote left open?)"},
	"found unknown escape character":                 {hint: ` (in double quotes, \ has to be \\)`},
	"found invalid Unicode character escape code":    {},
	"found unknown directive name":                   {hint: " (a value that begins with % needs quotes)"},
	"did not find expected alphabetic or numeric character": {
		hint: " (a value that begins with & or * needs quotes)",
	},
	"block sequence entries are not allowed in this context": {},
}

var (
	libraryError  = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	tabIndent     = regexp.MustCompile(`(?m)^ *\t[ \t]*[^\s#]`)
)

// syntax is the library's error with a better line and without what it may quote. The line is where
// it noticed: mostly the one, sometimes the one behind, or where the list or mapping begins.
func syntax(data []byte, err error) (origin, error) {
	const prefix = "is not valid YAML"
	m := libraryError.FindStringSubmatch(err.Error())
	if m == nil {
		return origin{}, invalid(prefix)
	}
	line, _ := strconv.Atoi(m[1])
	if tab := tabIndent.FindIndex(data); tab != nil && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return lineAt(data, tab[0]), invalid(prefix + ": the line is indented with a tab; use spaces")
	}
	if name := unknownAnchor.FindStringSubmatch(m[2]); name != nil {
		at := lineAt(data, bytes.Index(data, []byte("*"+name[1])))
		return at, invalid(noAlias + " (a value that begins with & or * needs quotes)")
	}
	c, ok := complaints[m[2]]
	if !ok {
		return origin{line: line}, invalid(prefix)
	}
	if c.offByOne || line == 0 {
		line++
	}
	last := lineAt(data, len(strings.TrimRight(string(data), "\r\n"))).line
	return origin{line: min(line, last)}, invalid(prefix + ": " + m[2] + c.hint)
}

// lineAt is the line of an offset; none if there is no such offset.
func lineAt(data []byte, offset int) origin {
	if offset < 0 {
		return origin{}
	}
	return origin{line: 1 + bytes.Count(data[:offset], []byte("\n"))}
}
