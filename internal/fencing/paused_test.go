package fencing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

const ttl = time.Second // etcd has no shorter one

// A job is what a process that this test starts is to do.
type job struct {
	Kind, Lock, Data, Key string
	Naive                 bool
}

const jobVariable = "HOLDFAST_FENCING_JOB"

func init() {
	text := os.Getenv(jobVariable)
	if text == "" {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.run(context.Background())
	}
	switch {
	case err == nil:
		fmt.Println("done")
	case errors.Is(err, fence.ErrStale):
		fmt.Println("stale")
	default:
		fmt.Println(err)
	}
	os.Exit(0)
}

// run locks, reads, is stopped, and writes, without another look at its lock.
func (j job) run(ctx context.Context) error {
	g, s, err := j.hold(ctx)
	if err != nil {
		return err
	}
	left, err := s.read(ctx)
	if err != nil {
		return err
	}
	fmt.Println("held", g.Hold().Token)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if j.Naive {
		return s.naive(ctx, left-1)
	}
	return s.write(ctx, left-1)
}

// hold waits for the lock, and opens what it protects. Nothing of it is closed: the process ends.
func (j job) hold(ctx context.Context) (*locker.Guard[struct{}], stock, error) {
	b, err := backend.Open(ctx, j.Lock)
	if err != nil {
		return nil, stock{}, err
	}
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: ttl, Namespace: "shop"})
	if err != nil {
		return nil, stock{}, err
	}
	g, err := l.Lock(ctx, j.Key)
	if err != nil {
		return nil, stock{}, err
	}
	s, err := stocks[j.Kind](ctx, b, j.Data, g.Hold())
	return g, s, err
}

// A holder is stopped for three leases. Another gets the lock meanwhile, and looks at the stock,
// but has written nothing yet. (In the lock's own store it need not even look.) Then the first one
// goes on, and writes at once. Fenced, that changes nothing; without, it changes what the other
// relies on.
//
// covers: K4, K5, G8
func TestPausedHolder(t *testing.T) {
	redisServer, etcd, postgres := testserver.Redis(t), testserver.Etcd(t),
		testserver.Postgres(t).URL()
	srv := httptest.NewServer(shop())
	t.Cleanup(srv.Close)
	locks := map[string]string{
		"etcd":    "etcd://" + etcd.Addr(),
		"rueidis": "rueidis://" + redisServer.Addr(),
	}
	// Returns when the parallel ones have ended, before the servers do.
	t.Run("all", func(t *testing.T) {
		for kind := range stocks {
			for _, naive := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/naive=%v", kind, naive), func(t *testing.T) {
					t.Parallel()
					key := strings.ReplaceAll(kind, " ", "-") + strconv.FormatBool(naive)
					j := job{
						Kind: kind, Lock: "redis://" + redisServer.Addr(), Key: key,
						Naive: naive,
					}
					if lock := locks[kind]; lock != "" {
						j.Lock = lock
					}
					switch driver, _, _ := strings.Cut(kind, " "); driver {
					case "sqlite":
						j.Data = sqliteFile(t)
						prepared(t, "sqlite", j.Data, key)
					case "postgres":
						j.Data = postgres
						prepared(t, "pgx", j.Data, key)
					case "etcd":
						j.Data = etcd.Addr()
					case "http":
						j.Data = srv.URL
					default:
						j.Data = redisServer.Addr()
					}
					pause(t, j)
				})
			}
		}
	})
}

func pause(t *testing.T, j job) {
	const full = 10
	g, s := held(t, j)
	ok(t, s.naive(t.Context(), full))
	ok(t, s.write(t.Context(), full))
	ok(t, g.Unlock())

	late := start(t, j)
	if word := late.says(t); !strings.HasPrefix(word, "held ") {
		t.Fatalf("the holder: %s", word)
	}
	late.signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	g, s = held(t, j)
	if j.Kind != "redis" && j.Kind != "rueidis" && j.Kind != "etcd" {
		left, err := s.read(t.Context())
		ok(t, err)
		if left != full {
			t.Fatalf("%d are left, want %d", left, full)
		}
	}
	time.Sleep(time.Until(stopped.Add(3 * ttl))) // it is the length of the pause that is tried
	ok(t, g.Check(t.Context()))
	late.tell(t, "go on")
	late.signal(t, syscall.SIGCONT)
	word := late.says(t)

	left := full
	if j.Naive {
		left = full - 1
	}
	if want := map[bool]string{false: "stale", true: "done"}[j.Naive]; word != want {
		t.Errorf("the late holder says %q, want %q", word, want)
	}
	now, err := s.read(t.Context())
	ok(t, err)
	if now != left {
		t.Errorf("%d are left, want %d", now, left)
	}
	ok(t, s.write(t.Context(), full-2))
	ok(t, g.Unlock())
}

func held(t *testing.T, j job) (*locker.Guard[struct{}], stock) {
	t.Helper()
	g, s, err := j.hold(t.Context())
	ok(t, err)
	t.Cleanup(func() { _ = s.close() })
	return g, s
}

// A process is one that this test has started.
type process struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, j job) process {
	t.Helper()
	text, err := json.Marshal(j)
	ok(t, err)
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	ok(t, err)
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return process{cmd, in, bufio.NewReader(out)}
}

func (p process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	ok(t, p.cmd.Process.Signal(s))
}

func (p process) tell(t *testing.T, word string) {
	t.Helper()
	_, err := fmt.Fprintln(p.in, word)
	ok(t, err)
}

func (p process) says(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	ok(t, err)
	return strings.TrimSpace(line)
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
