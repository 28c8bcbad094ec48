package smallredis

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// A Server is one server. It is not safe for concurrent use: like Redis it executes one request
// after the other.
type Server struct {
	Now     func() time.Time // its wall clock
	IFEQ    bool             // it has SET … IFEQ, as Redis 8.4 and Valkey 8.1
	Full    bool             // it is out of memory: what needs more is refused
	Replica bool             // writes are refused
	GoesOn  bool             // the clock does, within a script, as before Redis 7.2
	ID      string           // its replication id, in hex
	Cover   *Cover           // counts what scripts run; nil: nothing does

	// Slot returns what the server knows of the slot of a key, nil if it simply has it. Without it
	// there is no cluster.
	Slot func(key string) *Slot

	// Publish delivers a message to those who subscribe, and returns how many they are.
	Publish func(channel, payload string) int

	keys    map[string]*value
	journal [][]write // of each script or command, which a replica has whole or not at all
	keep    bool      // the journal

	frozen time.Time // during a script
	dirty  bool      // the script has written
	asking bool      // ASKING came before this request
	state  *lua.LState
}

// An Error is the reply of a server that refuses.
type Error string

func (e Error) Error() string { return string(e) }

// A status is a simple string such as OK.
type status string

// A value is what a key has. It is replaced or changed in place, and copied for the journal.
type value struct {
	text    string
	fields  map[string]string // of a hash; nil for a string
	order   []string          // of the fields, as they were added
	expires int64             // ms since 1970; 0: never
}

func (v *value) clone() *value {
	if v == nil {
		return nil
	}
	c := *v
	c.fields, c.order = maps.Clone(v.fields), slices.Clone(v.order)
	return &c
}

// A write is one entry of the journal: what a key was set to; nil if it was deleted.
type write struct {
	key string
	to  *value
}

// New returns an empty server.
func New(now func() time.Time, id string) *Server {
	return &Server{Now: now, ID: id, keys: map[string]*value{}}
}

// Journal has the server keep what it has and what it writes, for [Server.Follow].
func (s *Server) Journal() {
	s.keep = true
	var has []write
	for key, v := range s.keys {
		has = append(has, write{key, v.clone()})
	}
	s.journal = append(s.journal, has)
}

// Written returns how many entries the journal has: what was there at first, and one for each
// script or command that wrote.
func (s *Server) Written() int { return len(s.journal) }

// Follow returns what a replica has that has received the first n entries of the journal: an empty
// server beside that, with a clock and an id of its own.
func (s *Server) Follow(n int, now func() time.Time, id string) *Server {
	r := New(now, id)
	for _, w := range slices.Concat(s.journal[:n]...) {
		if w.to == nil {
			delete(r.keys, w.key)
		} else {
			r.keys[w.key] = w.to.clone()
		}
	}
	return r
}

// Flush is FLUSHALL, in one step: a replica has it whole or not at all.
func (s *Server) Flush() {
	s.frozen, s.dirty = s.Now(), false
	defer func() { s.frozen = time.Time{} }()
	for key := range s.keys {
		s.put(key, nil)
	}
}

// Keys returns the names of those that have not expired, sorted.
func (s *Server) Keys() []string {
	var names []string
	for key := range s.keys {
		if s.get(key) != nil {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

func (s *Server) now() time.Time {
	if !s.frozen.IsZero() {
		return s.frozen
	}
	return s.Now()
}

// get returns what a key has, nil if it has nothing or has expired.
func (s *Server) get(key string) *value {
	v := s.keys[key]
	if v != nil && v.expires != 0 && s.now().UnixMilli() > v.expires {
		delete(s.keys, key)
		return nil
	}
	return v
}

// put has a key be v, and notes that. Nil deletes it.
func (s *Server) put(key string, v *value) {
	if v == nil {
		delete(s.keys, key)
	} else {
		s.keys[key] = v
	}
	if s.keep {
		if s.frozen.IsZero() || !s.dirty { // the first write of a script, or a command by itself
			s.journal = append(s.journal, nil)
		}
		last := len(s.journal) - 1
		s.journal[last] = append(s.journal[last], write{key, v.clone()})
	}
	s.dirty = true
}

// writes are the commands that change something; growing ones may need memory for it.
var (
	writes  = []string{"SET", "DEL", "HSET", "HDEL", "PEXPIRE"}
	growing = []string{"SET", "HSET"}
)

const wrongType = Error("WRONGTYPE Operation against a key holding the wrong kind of value")

// Do executes one command. A reply is nil, an int64, a string or a []any of those; an error is an
// [Error].
func (s *Server) Do(args ...string) (any, error) {
	if s.Slot != nil && strings.EqualFold(args[0], "ASKING") {
		s.asking = true
		return "OK", nil
	}
	defer func() { s.asking = false }()
	reply := s.command(args)
	switch reply := reply.(type) {
	case Error:
		return nil, reply
	case status:
		return string(reply), nil
	}
	return reply, nil
}

func (s *Server) command(args []string) any {
	name := strings.ToUpper(args[0])
	args = args[1:]
	if elsewhere := s.redirected(keysOf(name, args)); elsewhere != nil {
		if !s.frozen.IsZero() {
			return nonLocal
		}
		return elsewhere
	}
	if slices.Contains(writes, name) {
		switch {
		case s.Replica:
			return Error("READONLY You can't write against a read only replica.")
		case s.Full && slices.Contains(growing, name) && (s.frozen.IsZero() || !s.dirty):
			return Error("OOM command not allowed when used memory > 'maxmemory'.")
		}
	}
	least, known := map[string]int{
		"GET": 1, "SET": 2, "DEL": 1, "HGET": 2, "HMGET": 2, "HGETALL": 1, "HSET": 3, "HDEL": 2,
		"PTTL": 1, "PEXPIRE": 2, "PUBLISH": 2, "TIME": 0, "INFO": 0, "PING": 0,
	}[name]
	switch {
	case !known:
		return Error(fmt.Sprintf("ERR unknown command '%s', with args beginning with: ", name))
	case len(args) < least:
		return Error(fmt.Sprintf("ERR wrong number of arguments for '%s' command",
			strings.ToLower(name)))
	}
	switch name {
	case "PING":
		return status("PONG")
	case "TIME":
		us := s.now().UnixMicro()
		return []any{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)}
	case "INFO":
		return s.info()
	case "PUBLISH":
		if s.Publish == nil {
			return int64(0)
		}
		return int64(s.Publish(args[0], args[1]))
	case "SET":
		return s.set(args[0], args[1], args[2:])
	case "DEL":
		deleted := int64(0)
		for _, key := range args {
			if s.get(key) != nil {
				s.put(key, nil)
				deleted++
			}
		}
		return deleted
	case "PTTL":
		switch v := s.get(args[0]); {
		case v == nil:
			return int64(-2)
		case v.expires == 0:
			return int64(-1)
		default:
			return v.expires - s.now().UnixMilli()
		}
	case "PEXPIRE":
		return s.expire(args[0], args[1])
	}
	v := s.get(args[0])
	if name == "GET" {
		switch {
		case v == nil:
			return nil
		case v.fields != nil:
			return wrongType
		}
		return v.text
	}
	if v != nil && v.fields == nil {
		return wrongType
	}
	return s.hash(name, args[0], v, args[1:])
}

// hash is the commands on a hash; v is nil if there is none.
func (s *Server) hash(name, key string, v *value, args []string) any {
	field := func(f string) any {
		if v != nil {
			if text, ok := v.fields[f]; ok {
				return text
			}
		}
		return nil
	}
	switch name {
	case "HGET":
		return field(args[0])
	case "HMGET":
		all := make([]any, len(args))
		for i, f := range args {
			all[i] = field(f)
		}
		return all
	case "HGETALL":
		all := []any{}
		if v != nil {
			for _, f := range v.order {
				all = append(all, f, v.fields[f])
			}
		}
		return all
	case "HSET":
		if len(args)%2 != 0 {
			return Error("ERR wrong number of arguments for 'hset' command")
		}
		if v == nil {
			v = &value{fields: map[string]string{}}
		}
		added := int64(0)
		for i := 0; i < len(args); i += 2 {
			if _, had := v.fields[args[i]]; !had {
				v.order = append(v.order, args[i])
				added++
			}
			v.fields[args[i]] = args[i+1]
		}
		s.put(key, v)
		return added
	}
	deleted := int64(0) // HDEL
	for _, f := range args {
		if field(f) != nil {
			delete(v.fields, f)
			v.order = slices.DeleteFunc(v.order, func(o string) bool { return o == f })
			deleted++
		}
	}
	switch {
	case deleted == 0:
	case len(v.fields) == 0:
		s.put(key, nil)
	default:
		s.put(key, v)
	}
	return deleted
}

func (s *Server) expire(key, ms string) any {
	n, err := strconv.ParseInt(ms, 10, 64)
	v := s.get(key)
	switch {
	case err != nil:
		return Error("ERR value is not an integer or out of range")
	case v == nil:
		return int64(0)
	case n <= 0:
		s.put(key, nil)
		return int64(1)
	}
	v.expires = s.now().UnixMilli() + n
	s.put(key, v)
	return int64(1)
}

// set is SET key text with its options.
func (s *Server) set(key, text string, options []string) any {
	const syntax = Error("ERR syntax error")
	var px, at int64
	var keepTTL, nx, xx, get bool
	var old *string
	for i := 0; i < len(options); i++ {
		argument := func() (string, bool) {
			i++
			if i >= len(options) {
				return "", false
			}
			return options[i], true
		}
		switch option := strings.ToUpper(options[i]); {
		case option == "PX" || option == "PXAT":
			ms, ok := argument()
			n, err := strconv.ParseInt(ms, 10, 64)
			switch {
			case !ok:
				return syntax
			case err != nil:
				return Error("ERR value is not an integer or out of range")
			case n <= 0:
				return Error("ERR invalid expire time in 'set' command")
			}
			if option == "PX" {
				px = n
			} else {
				at = n
			}
		case option == "IFEQ" && s.IFEQ:
			want, ok := argument()
			if !ok {
				return syntax
			}
			old = &want
		case option == "KEEPTTL":
			keepTTL = true
		case option == "NX":
			nx = true
		case option == "XX":
			xx = true
		case option == "GET":
			get = true
		default:
			return syntax
		}
	}
	if (keepTTL || at != 0) && px != 0 || keepTTL && at != 0 || nx && xx ||
		old != nil && (nx || xx) {
		return syntax
	}
	v := s.get(key)
	if v != nil && v.fields != nil && (get || old != nil) {
		return wrongType
	}
	var before any
	if get && v != nil {
		before = v.text
	}
	if nx && v != nil || xx && v == nil || old != nil && (v == nil || v.text != *old) {
		return before // nil where GET is not asked for: not written
	}
	to := &value{text: text}
	if keepTTL && v != nil {
		to.expires = v.expires
	}
	if px != 0 {
		to.expires = s.now().UnixMilli() + px
	} else if at != 0 {
		to.expires = at
	}
	if at != 0 && at <= s.now().UnixMilli() { // it is over before it begins
		to = nil
	}
	s.put(key, to)
	if get {
		return before
	}
	return status("OK")
}

func (s *Server) info() string {
	role := "master"
	if s.Replica {
		role = "slave"
	}
	return "# Replication\r\nrole:" + role + "\r\nmaster_replid:" + s.ID +
		"\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n"
}
