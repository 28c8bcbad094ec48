package testserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// The programs, and the packages that they are made of.
var etcdPackages = map[string]string{"etcd": ".", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}

var etcdBuilding sync.Mutex // one build at a time in a process

// EtcdProgram returns the path of etcd or etcdctl. The first call after a change of version builds
// it from the module internal/etcdd and through the module proxy, which takes minutes on a fresh
// machine, and keeps it in the user's cache. .ci/deps makes the same files, so that no test waits
// for that. It may be called concurrently. The error is that of the build, or says that the program
// is none of the two.
func EtcdProgram(program string) (string, error) {
	pkg, ok := etcdPackages[program]
	if !ok {
		return "", fmt.Errorf("testserver: no program %q", program)
	}
	etcdBuilding.Lock()
	defer etcdBuilding.Unlock()
	src, err := etcdSource()
	if err != nil {
		return "", err
	}
	dir, err := etcdCache(src)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, program)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, buildEtcd(src, pkg, path)
}

// buildEtcd makes a program and then moves it into place: others may build the same at once.
func buildEtcd(src, pkg, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", fresh,
		pkg)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testserver: go build %s: %w\n%s", pkg, err, out)
	}
	return os.Rename(fresh, path)
}

// etcdSource is the directory of the module, from wherever in the repository a test runs.
func etcdSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		src := filepath.Join(dir, "internal", "etcdd")
		if _, err := os.Stat(filepath.Join(src, "go.mod")); err == nil {
			return src, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("testserver: there is no internal/etcdd above the " +
				"working directory")
		}
		dir = parent
	}
}

// etcdCache is the directory of the programs of this version, as .ci/deps names it.
func etcdCache(src string) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	sum := sha256.Sum256([]byte(all.String()))
	return filepath.Join(root, "holdfast-etcd", hex.EncodeToString(sum[:])[:16]), nil
}
