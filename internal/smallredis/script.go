package smallredis

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// compiled has the code of each source: scripts are few and run often.
var compiled sync.Map // string: *lua.FunctionProto

func compile(source string) (*lua.FunctionProto, error) {
	if p, ok := compiled.Load(source); ok {
		//nolint:errcheck,forcetypeassert // nothing else is stored
		return p.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "script")
	if err != nil {
		return nil, err
	}
	p, err := lua.Compile(chunk, "script")
	if err != nil {
		return nil, err
	}
	compiled.Store(source, p)
	return p, nil
}

// Eval runs a script, in one step and at one time, as EVAL does.
func (s *Server) Eval(source string, keys, args []string) (any, error) {
	defer func() { s.asking = false }()
	if elsewhere, ok := s.redirected(keys).(Error); ok {
		return nil, elsewhere
	}
	l := s.lua()
	code, err := s.compile(source)
	if err != nil {
		return nil, Error("ERR Error compiling script: " + err.Error())
	}
	if s.dirty = false; !s.GoesOn {
		s.frozen = s.Now()
	}
	defer func() { s.frozen = time.Time{} }()
	l.SetGlobal("KEYS", table(l, keys))
	l.SetGlobal("ARGV", table(l, args))
	l.Push(l.NewFunctionFromProto(code))
	if err := l.PCall(0, 1, nil); err != nil {
		if failed, ok := err.(*lua.ApiError); ok { //nolint:errorlint // as PCall says
			if t, ok := failed.Object.(*lua.LTable); ok {
				if text, ok := t.RawGetString("err").(lua.LString); ok {
					return nil, Error(text)
				}
			}
		}
		return nil, Error("ERR " + err.Error())
	}
	result := l.Get(-1)
	l.Pop(1)
	reply := fromLua(result)
	if failed, ok := reply.(Error); ok {
		return nil, failed
	}
	return reply, nil
}

// compile returns the code of a script, which counts its statements if there is a Cover.
func (s *Server) compile(source string) (*lua.FunctionProto, error) {
	if s.Cover == nil {
		return compile(source)
	}
	script, err := s.Cover.compile(source)
	if err != nil {
		return nil, err
	}
	s.lua().SetGlobal(counter, s.lua().NewFunction(script.count))
	return script.code, nil
}

// lua returns the server's interpreter, with redis.call and redis.pcall.
func (s *Server) lua() *lua.LState {
	if s.state != nil {
		return s.state
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.StringLibName: lua.OpenString,
		lua.TabLibName: lua.OpenTable, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	mend(l)
	r := l.NewTable()
	r.RawSetString("call", l.NewFunction(func(l *lua.LState) int {
		reply := s.call(l)
		if t, ok := reply.(*lua.LTable); ok && t.RawGetString("err") != lua.LNil {
			l.Error(t, 0)
		}
		l.Push(reply)
		return 1
	}))
	r.RawSetString("pcall", l.NewFunction(func(l *lua.LState) int {
		l.Push(s.call(l))
		return 1
	}))
	l.SetGlobal("redis", r)
	s.state = l
	return l
}

// mend has three functions do what they do in Redis: string.match without a match returns nil, and
// not nothing, which is no argument for another function; string.find begins behind the end at the
// end; and tonumber reads what C's strtod does.
func mend(l *lua.LState) {
	//nolint:errcheck,forcetypeassert // just opened
	str := l.GetGlobal(lua.StringLibName).(*lua.LTable)
	//nolint:errcheck,forcetypeassert // as str
	match := str.RawGetString("match").(*lua.LFunction).GFunction
	str.RawSetString("match", l.NewFunction(func(l *lua.LState) int { return max(match(l), 1) }))
	//nolint:errcheck,forcetypeassert // as str
	find := str.RawGetString("find").(*lua.LFunction).GFunction
	str.RawSetString("find", l.NewFunction(func(l *lua.LState) int {
		if end := len(l.CheckString(1)) + 1; l.OptInt(3, 1) > end {
			l.Replace(3, lua.LNumber(end))
		}
		return find(l)
	}))
	l.SetGlobal("tonumber", l.NewFunction(func(l *lua.LState) int {
		switch v := l.CheckAny(1).(type) {
		case lua.LNumber:
			l.Push(v)
		case lua.LString:
			f, err := strconv.ParseFloat(strings.TrimSpace(string(v)), 64)
			if err != nil && !errors.Is(err, strconv.ErrRange) || strings.Contains(string(v), "_") {
				l.Push(lua.LNil)
			} else {
				l.Push(lua.LNumber(f))
			}
		default:
			l.Push(lua.LNil)
		}
		return 1
	}))
}

// call executes the command that a script gives.
func (s *Server) call(l *lua.LState) lua.LValue {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = digits(float64(v))
		default:
			return toLua(l, Error("ERR Lua redis lib command arguments must be "+
				"strings or integers"))
		}
	}
	if len(args) == 0 {
		return toLua(l, Error("ERR Please specify at least one argument for this "+
			"redis.call() call"))
	}
	return toLua(l, s.command(args))
}

// digits is how Redis writes a number of Lua's: %.17g.
func digits(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

func table(l *lua.LState, all []string) *lua.LTable {
	t := l.CreateTable(len(all), 0)
	for _, s := range all {
		t.Append(lua.LString(s))
	}
	return t
}

// toLua converts a reply as Redis does with RESP2.
func toLua(l *lua.LState, reply any) lua.LValue {
	named := func(name, text string) *lua.LTable {
		t := l.CreateTable(0, 1)
		t.RawSetString(name, lua.LString(text))
		return t
	}
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case status:
		return named("ok", string(r))
	case Error:
		return named("err", string(r))
	case []any:
		t := l.CreateTable(len(r), 0)
		for i, v := range r {
			t.RawSetInt(i+1, toLua(l, v))
		}
		return t
	}
	panic("smallredis: a reply of another type")
}

// fromLua converts what a script returns.
func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LBool:
		if v {
			return int64(1)
		}
		return nil
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return Error(text)
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			return string(text)
		}
		all := []any{}
		for i := 1; ; i++ {
			one := v.RawGetInt(i)
			if one == lua.LNil {
				return all
			}
			all = append(all, fromLua(one))
		}
	}
	return nil
}
