package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyForm is what a key looks like. One that does not is not shown: in
// {backend:redis://:password@host}, which lacks a space, the key is all of it.
var keyForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// section takes the keys of a mapping. The prefix is empty for the file's own, else it ends in a
// dot.
func (l *loader) section(n *yaml.Node, prefix string) {
	at, name := origin{line: n.Line}, strings.TrimSuffix(prefix, ".")
	switch {
	case l.aliased(n, name), null(n): // with all its keys commented out, a section is none
		return
	case n.Kind != yaml.MappingNode && prefix == "":
		l.fail(at, "", invalid("must hold keys and values (is there a space behind every colon?)"))
		return
	case n.Kind != yaml.MappingNode:
		l.fail(at, name, invalid("must hold keys and values, not "+kindOf(n)))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !l.key(key, prefix) {
			continue
		}
		full, at := prefix+key.Value, origin{line: key.Line}
		if first, twice := seen[full]; twice {
			l.fail(at, full, invalid("is there already, at line "+strconv.Itoa(first)))
			continue
		}
		seen[full] = key.Line
		l.member(full, key, value)
	}
}

// key says whether a key has the form of one, and is written in the plain way.
func (l *loader) key(n *yaml.Node, prefix string) bool {
	at, in := origin{line: n.Line}, strings.TrimSuffix(prefix, ".")
	switch {
	case n.ShortTag() == "!!merge":
		l.fail(at, in, invalid(noAlias))
	case l.aliased(n, in):
	case n.Kind != yaml.ScalarNode:
		l.fail(at, in, invalid("has a key that is "+kindOf(n)))
	case !keyForm.MatchString(n.Value):
		hint := ""
		if strings.Contains(n.Value, ":") {
			hint = " (is there a space behind every colon?)"
		}
		l.fail(at, in, invalid("has an unknown key, which is not shown as it does not look like one"+hint))
	default:
		return true
	}
	return false
}

// member takes one key's value, a section's or a field's.
func (l *loader) member(full string, key, value *yaml.Node) {
	i := slices.IndexFunc(fields, func(fd field) bool { return fd.key == full })
	isSection := slices.ContainsFunc(fields, func(fd field) bool { return strings.HasPrefix(fd.key, full+".") })
	dotted := strings.Contains(key.Value, ".") // wait.mode: so keys are named, and not written
	switch {
	case isSection && !dotted:
		l.section(value, full+".")
	case i < 0 || dotted:
		prefix := strings.TrimSuffix(full, key.Value)
		l.fail(origin{line: key.Line}, full, invalid("unknown key"+suggestKey(prefix, key.Value)))
	case l.aliased(value, full):
	case l.overridden(full):
	case fields[i].list():
		l.items(fields[i], value)
	default:
		l.scalar(fields[i], value, full)
	}
}

// overridden says whether the environment has set the key already. The file's value is then not
// even expanded: that it needs a variable which is not set here may be why it was overridden.
func (l *loader) overridden(key string) bool {
	o, set := l.from[key]
	return set && o.line == 0
}

func (l *loader) items(fd field, n *yaml.Node) {
	if null(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		l.fail(origin{line: n.Line}, fd.key, invalid("must be a list, such as [fencing, watch], not "+kindOf(n)))
		return
	}
	for i, item := range n.Content {
		where := fd.key + "[" + strconv.Itoa(i) + "]"
		if !l.aliased(item, where) {
			l.scalar(fd, item, where)
		}
	}
}

// scalar takes one value of fd.
func (l *loader) scalar(fd field, n *yaml.Node, where string) {
	at := origin{line: n.Line}
	text := n.Value
	switch tag := n.ShortTag(); {
	case null(n):
		text = ""
	case n.Kind != yaml.ScalarNode:
		l.fail(at, where, invalid("must be a "+fd.one()+", not "+kindOf(n)))
		return
	case tag == "!!str", fd.kind == "number" && tag == "!!int", fd.kind == boolKind && tag == "!!bool":
	case fd.kind == "duration" && (tag == "!!int" || tag == "!!float"):
		if text == "0" { // what time.ParseDuration lets pass
			break
		}
		l.fail(at, where, invalid("needs a unit, such as 30s, 1m30s or 500ms"))
		return
	default:
		l.fail(at, where, invalid("must be a "+fd.one()+", not "+kindOf(n)+"; put it in quotes if it is meant as text"))
		return
	}
	text, names, err := expand(text, l.lookup)
	at.env = names
	if err != nil {
		l.fail(at, where, err)
		return
	}
	l.apply(fd, at, where, text)
}

// aliased refuses what YAML has for not repeating oneself. A dozen keys need none of it, and it can
// blow up.
func (l *loader) aliased(n *yaml.Node, key string) bool {
	if n.Kind != yaml.AliasNode && n.Anchor == "" {
		return false
	}
	l.fail(origin{line: n.Line}, key, invalid(noAlias))
	return true
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindOf says what a node is, without what it says.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	case "!!str":
		return "a text"
	case "!!null":
		return "nothing"
	}
	return "a value with a tag"
}
