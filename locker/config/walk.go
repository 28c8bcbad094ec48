package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyForm is what a key looks like. One that does not is not shown: in
// {backend:redis://:password@host}, which lacks a space, the key is all of it.
var keyForm = pattern(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// section takes the keys of a mapping. The prefix is empty for the file's own, else it ends in a
// dot.
func (l *loader) section(n *yaml.Node, prefix string) {
	name := strings.TrimSuffix(prefix, ".")
	switch {
	case null(n): // with all its keys commented out, a section is none
	case n.Kind != yaml.MappingNode && prefix == "":
		l.refuse(n, "", "must hold keys and values (is there a space behind every colon?)")
	case n.Kind != yaml.MappingNode:
		l.refuse(n, name, "must hold keys and values, not "+kindOf(n))
	}
	lines := map[string]int{}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		full := prefix + key.Value
		if problem := keyProblem(key); problem != "" {
			l.refuse(key, name, problem)
		} else if first, twice := lines[full]; twice {
			l.refuse(key, full, "is there already, at line "+strconv.Itoa(first))
		} else {
			lines[full] = key.Line
			l.member(prefix, key, value)
		}
	}
}

// keyProblem says why a key cannot be one, whatever its section; empty if it can.
func keyProblem(key *yaml.Node) string {
	switch {
	case key.ShortTag() == "!!merge", aliased(key):
		return noAlias
	case key.Kind != yaml.ScalarNode:
		return "has a key that is " + kindOf(key)
	case keyForm().MatchString(key.Value):
		return ""
	case strings.Contains(key.Value, ":"):
		return "has an unknown key, which is not shown as it does not look like one (is there a " +
			"space behind every colon?)"
	}
	return "has an unknown key, which is not shown as it does not look like one"
}

// member takes one key's value, a section's or a field's.
func (l *loader) member(prefix string, key, value *yaml.Node) {
	full := prefix + key.Value
	i := slices.IndexFunc(fields, func(fd field) bool { return fd.key == full })
	isSection := slices.ContainsFunc(fields, func(fd field) bool {
		return strings.HasPrefix(fd.key, full+".")
	})
	switch {
	// wait.mode: so keys are named, and not written.
	case i < 0 && !isSection, strings.Contains(key.Value, "."):
		l.refuse(key, full, "unknown key"+suggestKey(prefix, key.Value))
	case aliased(value):
		l.refuse(value, full, noAlias)
	case isSection:
		l.section(value, full+".")
	case l.from[full].env != nil:
		// The environment has set the key already. The file's value is not even expanded: that it
		// needs a variable which is not set here may be why it was overridden.
	case fields[i].list() && value.Kind == yaml.SequenceNode:
		for at, item := range value.Content {
			l.scalar(fields[i], item, full+"["+strconv.Itoa(at)+"]")
		}
	case fields[i].list() && !null(value):
		l.refuse(value, full, "must be a list, in [] or of lines that begin with -, not "+
			kindOf(value))
	default:
		l.scalar(fields[i], value, full)
	}
}

// scalar takes one value of fd. where is its key, or the place in its list.
func (l *loader) scalar(fd field, n *yaml.Node, where string) {
	text, tag, kind, problem := n.Value, n.ShortTag(), fd.kind(), ""
	switch {
	case aliased(n):
		problem = noAlias
	case null(n):
		text = ""
	case n.Kind != yaml.ScalarNode:
		problem = "must be a " + kind + ", not " + kindOf(n)
	case tag == "!!str", tag == "!!int" && kind == "number", tag == "!!bool" &&
		kind == "true or false":
	case kind == "duration" && text == "0": // what time.ParseDuration lets pass
	case kind == "duration" && kindOf(n) == "a number":
		problem = "needs a unit, such as 30s, 1m30s or 500ms"
	default:
		problem = "must be a " + kind + ", not " + kindOf(n) +
			"; put it in quotes if it is meant as text"
	}
	if problem != "" {
		l.refuse(n, where, problem)
		return
	}
	text, from, err := expand(text)
	from.line = n.Line
	if err != nil {
		l.fail(from, where, err)
		return
	}
	l.apply(fd, from, where, text)
}

// noAlias is why anchors are refused: YAML has them for not repeating oneself. A dozen keys need
// none of it, and it can blow up.
const noAlias = "anchors, aliases and merge keys are not supported; write the value out"

// aliased reports whether n is an alias, or has an anchor that one could refer to.
func aliased(n *yaml.Node) bool { return n.Kind == yaml.AliasNode || n.Anchor != "" }

// null reports whether n is YAML's null: written so, as ~, or as nothing behind a colon.
func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindOf says what a node is, without what it says.
func kindOf(n *yaml.Node) string { return cmp.Or(kinds[n.ShortTag()], "a value with a tag") }

// kinds are the tags that YAML itself gives, in words.
var kinds = map[string]string{
	"!!map": "a mapping", "!!seq": "a list", "!!int": "a number", "!!float": "a number",
	"!!bool":      "true or false",
	"!!timestamp": "a date", "!!str": "a text", "!!null": "nothing",
}
