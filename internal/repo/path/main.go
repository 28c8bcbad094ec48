// Command path tells what of this module one warm Lock and Unlock passes: functions, files,
// packages and lines, from coverage counters that are cleared just before. It is a mirror and no
// gate: look at it before and after a change.
//
//	path              a table: of each store a free key, and one that another goroutine holds
//	path URL MODE     the functions of one row, one a line; MODE is free or local
//
// It starts a redis-server where the URL names a scheme alone, as redis:// does.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const module = "github.com/holdfast-go/holdfast"

func main() {
	run := measure
	if os.Getenv(passEnv) != "" {
		run = pass // we are the program that is measured
	}
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "path:", err)
		os.Exit(1)
	}
}

// measure builds this program once more with counters, and runs that.
func measure(ctx context.Context, args []string) error {
	dir, err := os.MkdirTemp("", "path")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "path")
	build := exec.CommandContext(ctx, "go", "build", "-cover", "-covermode=atomic",
		"-coverpkg="+module+"/...", "-o", program,
		module+"/internal/repo/path")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	server, stop, err := startRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer stop()
	one := func(url, mode string) ([]string, int, error) {
		if strings.HasSuffix(url, "redis://") || strings.HasSuffix(url, "rueidis://") {
			url += server
		}
		return passed(ctx, program, url, mode)
	}

	if len(args) == 2 {
		functions, _, err := one(args[0], args[1])
		fmt.Println(strings.Join(functions, "\n"))
		return err
	}
	fmt.Printf("%-12s %-6s %9s %5s %8s %5s\n", "store", "mode", "functions", "files", "packages",
		"lines")
	for _, url := range []string{"mem://", "redis://", "rueidis://"} {
		for _, mode := range []string{"free", "local"} {
			functions, lines, err := one(url, mode)
			if err != nil {
				return fmt.Errorf("%s %s: %w", url, mode, err)
			}
			files, packages := map[string]bool{}, map[string]bool{}
			for _, f := range functions {
				file, _, _ := strings.Cut(f, ":")
				files[file], packages[path.Dir(file)] = true, true
			}
			fmt.Printf("%-12s %-6s %9d %5d %8d %5d\n", url, mode, len(functions), len(files),
				len(packages), lines)
		}
	}
	return nil
}

// passed runs one pair and returns the functions whose counters moved, as "file:line: function",
// and how many lines were executed.
func passed(ctx context.Context, program, url, mode string) ([]string, int, error) {
	dir, err := os.MkdirTemp(filepath.Dir(program), "counters")
	if err != nil {
		return nil, 0, err
	}
	child := exec.CommandContext(ctx, program, url, mode)
	// What it counts at its end is of no interest.
	child.Env = append(os.Environ(), passEnv+"="+dir, "GOCOVERDIR="+filepath.Dir(program))
	if out, err := child.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("%w\n%s", err, out)
	}
	profile := filepath.Join(dir, "profile")
	if out, err := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+dir,
		"-o="+profile).CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("covdata: %w\n%s", err, out)
	}
	table, err := exec.CommandContext(ctx, "go", "tool", "cover", "-func="+profile).Output()
	if err != nil {
		return nil, 0, fmt.Errorf("cover: %w", err)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, 0, err
	}
	var functions []string
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // as in: module/dir/file.go:12: Name 83.3%
		if len(f) != 3 || f[0] == "total:" || f[2] == "0.0%" ||
			strings.Contains(f[0], "/internal/repo/path/") {
			continue
		}
		functions = append(functions, strings.TrimPrefix(f[0], module+"/")+" "+f[1])
	}
	return functions, executed(string(text)), nil
}

// executed counts the lines of a profile's blocks that were executed, but for those that are
// blank or a comment. A block is as in "module/dir/file.go:12.30,15.2 3 1": from, to, statements,
// times.
func executed(profile string) int {
	lines, files := map[string]bool{}, map[string][]bool{}
	for block := range strings.Lines(profile) {
		var from, to, column, statements, times int
		file, rest, _ := strings.Cut(strings.TrimSpace(block), ":")
		n, _ := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &from, &column, &to, &column, &statements,
			&times)
		if n < 6 || times == 0 || strings.Contains(file, "/internal/repo/path/") {
			continue
		}
		if files[file] == nil {
			files[file] = codeOf(strings.TrimPrefix(file, module+"/"))
		}
		for line := from; line <= to; line++ {
			if line > len(files[file]) || files[file][line-1] {
				lines[file+":"+strconv.Itoa(line)] = true
			}
		}
	}
	return len(lines)
}

// codeOf reports of each line of a file whether it has more than white space and a comment. A file
// that cannot be read has no lines, and all of its are counted.
func codeOf(file string) (code []bool) {
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		return []bool{}
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		code = append(code, line != "" && !strings.HasPrefix(line, "//"))
	}
	return code
}

// startRedis starts a server that keeps nothing, and returns its address when it answers.
func startRedis(ctx context.Context, dir string) (addr string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", nil, err
	}
	name := os.Getenv("HOLDFAST_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	server := exec.CommandContext(ctx, name, "--bind", "127.0.0.1", "--port", port, "--save", "",
		"--dir", dir)
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("%w (run make deps)", err)
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait() // killed
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return addr, stop, conn.Close()
		}
		if time.Now().After(deadline) {
			stop()
			return "", nil, fmt.Errorf("redis-server on port %s: %w", strconv.Quote(port), err)
		}
	}
}
