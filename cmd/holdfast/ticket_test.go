//go:build unix

package main_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// acquired takes key for ttl, and returns the ticket.
func acquired(t *testing.T, url, key, ttl string) string {
	t.Helper()
	o := holdfast(t, "acquire", key, "--ttl", ttl, "--backend", url).want(t, 0)
	if len(strings.Fields(o.out)) != 1 {
		t.Fatalf("acquire prints %q", o.out)
	}
	return strings.TrimSpace(o.out)
}

// A ticketTold is what the commands about a ticket print as JSON.
type ticketTold struct {
	Key    string
	Token  uint64
	Lease  float64 `json:"lease_left_s"`
	Ticket string
}

func (o outcome) told(t *testing.T) (v ticketTold) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.out), &v); err != nil {
		t.Fatalf("%v: %s%s", err, o.out, o.err)
	}
	return v
}

// The steps of a job, each a process of its own: the lock is held from the first to the last,
// whoever waits gets it then, and afterwards the ticket is worth nothing.
func TestTickets(t *testing.T) {
	redis := testserver.SharedRedis(t)
	for name, url := range map[string]string{
		"redis": redis.URL(), "rueidis": "rueidis://" +
			redis.Addr(), "etcd": etcdURL(testserver.Etcd(t)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := t.Name()
			with := func(ticket string, args ...string) outcome {
				t.Helper()
				return holdfast(t, append(args, "--ticket", ticket, "--backend", url)...)
			}
			first := holdfast(t, "acquire", key, "--ttl=10m", "-o", "json", "--backend",
				url).want(t, 0).told(t)
			// etcd's may be a third longer.
			if first.Key != key || first.Token == 0 || first.Lease < 300 || first.Lease > 900 {
				t.Errorf("acquired %+v", first)
			}
			for _, verb := range []string{"check", "renew"} {
				if o := with(first.Ticket, verb, "-o", "json").want(t,
					0).told(t); o.Token != first.Token || o.Key != key || o.Lease < 300 ||
					o.Lease > 900 {
					t.Errorf("%s: %+v", verb, o)
				}
				if o := with(first.Ticket, verb).want(t, 0); !strings.HasPrefix(o.out,
					key+": held") {
					t.Errorf("%s says %q", verb, o.out)
				}
			}
			holdfast(t, "acquire", key, "--ttl=10m", "--no-wait", "--backend", url).want(t, 75)
			if o := holdfast(t, "acquire", key, "--ttl=10m", "--wait=100ms", "--backend",
				url).want(t, 75); o.out != "" {
				t.Errorf("not acquired, and prints %q", o.out)
			}
			waits := begin(t, url, "acquire", key, "--ttl=10m")
			for o := (outcome{}); !strings.Contains(o.out, "waits"); {
				o = holdfast(t, "inspect", key, "--backend", url)
			}
			with(first.Ticket, "release").want(t, 0)
			second := waits.line()
			if status, _, errs := waits.end(); status != 0 {
				t.Fatalf("the waiter: %d, %s", status, errs)
			}
			// Of the first, which another has followed.
			for _, verb := range []string{"check", "renew", "release"} {
				if o := with(first.Ticket, verb).want(t, 76); !strings.Contains(o.err,
					"not held with this ticket") || o.out != "" {
					t.Errorf("%s says %s%s", verb, o.out, o.err)
				}
			}
			if o := with(second, "check", "-o", "json").want(t, 0).told(t); o.Lease < 300 ||
				o.Lease > 900 {
				t.Errorf("whoever waited has the lock for %v s", o.Lease)
			}
			with(second, "release").want(t, 0)
		})
	}
}

// A ticket ends with its TTL. What another holds since is not the ticket's.
func TestTicketRunsOut(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	key := t.Name()
	ticket := acquired(t, srv.URL(), key, enough)
	next := acquired(t, srv.URL(), key, "10m") // which waits for the end of the lease
	for _, verb := range []string{"renew", "check", "release"} {
		holdfast(t, verb, "--ticket", ticket, "--backend", srv.URL()).want(t, 76)
	}
	holdfast(t, "check", "--ticket", next, "--backend", srv.URL()).want(t, 0)
	holdfast(t, "inspect", key, "--backend", srv.URL()).want(t, 0)
	holdfast(t, "release", "--ticket", next, "--backend", srv.URL()).want(t, 0)
}

// What is renewed lasts for longer than a TTL.
func TestTicketIsRenewed(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	ttl, err := time.ParseDuration(enough)
	if err != nil {
		t.Fatal(err)
	}
	ticket := acquired(t, srv.URL(), t.Name(), enough)
	for began := time.Now(); time.Since(began) < ttl+ttl/2; time.Sleep(ttl / 10) {
		holdfast(t, "renew", "--ticket", ticket, "--backend", srv.URL()).want(t, 0)
	}
	holdfast(t, "release", "--ticket", ticket, "--backend", srv.URL()).want(t, 0)
}

// What is left of a lease is told as of when it is told, and not as of when the store was asked.
func TestTicketAnsweredLate(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	const late = time.Second
	// Then the server knows the script, and is asked once.
	holdfast(t, "inspect", t.Name(), "--backend", srv.URL()).want(t, 0)
	before := time.Now()
	ticket := acquired(t, srv.URL(), t.Name(), "10m")
	proxy := testserver.NewProxy(t, srv.Addr())
	proxy.Set(testserver.Fault{
		Mode: testserver.DelayReply, Match: testserver.Containing(t.Name()),
		Delay: late,
	})
	for _, verb := range []string{"check", "renew"} {
		o := holdfast(t, verb, "-o", "json", "--ticket", ticket, "--backend",
			"redis://"+proxy.Addr()).want(t, 0).told(t)
		if most := (10*time.Minute - late).Seconds(); o.Lease > most {
			t.Errorf("%s: %v s are left %v after the lease began, want %v at most", verb, o.Lease,
				time.Since(before), most)
		}
	}
	holdfast(t, "release", "--ticket", ticket, "--backend", srv.URL()).want(t, 0)
}

// A ticket knows its namespace, and says when the store is another than its own.
func TestTicketKnowsWhereItIsFrom(t *testing.T) {
	srv, other := testserver.SharedRedis(t), testserver.Redis(t)
	env := []string{"HOLDFAST_NAMESPACE=shop", "HOLDFAST_SERVICE=deploy job"}
	ticket := strings.TrimSpace(holdfastWith(t, env, "acquire", t.Name(), "--ttl=10m", "--backend",
		srv.URL()).want(t, 0).out)
	if o := holdfastWith(t, env, "inspect", t.Name(), "--backend",
		srv.URL()); !strings.Contains(o.out, "held by deploy job@") {
		t.Errorf("inspect says %s", o.out)
	}
	o := holdfast(t, "check", "--ticket", ticket, "--backend", other.URL()).want(t, 76)
	if says := "this is " + other.URL() + ", and the ticket is from " + srv.URL() +
		"\n"; !strings.HasSuffix(o.err, says) {
		t.Errorf("says %s, and not %s", o.err, says)
	}
	// As a file has it.
	holdfast(t, "release", "--ticket", "\n "+ticket+" \n", "--backend", srv.URL()).want(t, 0)
}

// A ticket that nobody gets keeps no lock.
func TestTicketThatIsNotPrinted(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // has no /dev/full
	}
	srv := testserver.SharedRedis(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	read, broken, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	for _, out := range []*os.File{full, broken} {
		cmd := command(t, t.TempDir(), "acquire", t.Name(), "--ttl=10m", "--backend", srv.URL())
		cmd.Stdout = out
		if err := cmd.Run(); statusOf(cmd) != 1 {
			t.Errorf("%v, want status 1", err)
		}
		if o := holdfast(t, "inspect", t.Name(), "--backend", srv.URL()).want(t,
			0); !strings.Contains(o.out, "is free") {
			t.Fatalf("it was not released: %s", o.out)
		}
	}
}

// A lease that is handed over is short, and to be renewed before there is a ticket. If the store
// does not say that it was, nobody gets a ticket, and the lock is not left locked.
//
// covers: C1, A2
func TestTicketThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	layout, err := script.NewLayout("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testserver.NewProxy(t, srv.Addr())
	renewals := testserver.Containing(layout.Renew(backend.Claim{}).Script.SHA1())
	proxy.Set(testserver.Fault{Mode: testserver.ExecuteThenCut, Match: renewals})
	for range 10 { // whoever asked just when the lock was released was granted a whole lease
		ticket, next := acquired(t, srv.URL(), t.Name(), "10m"), make(chan outcome, 1)
		go func() {
			next <- holdfast(t, "acquire", t.Name(), "--ttl=10m", "--backend",
				"redis://"+proxy.Addr())
		}()
		storetest.Eventually(t, "the next to wait", func() error {
			if o := holdfast(t, "inspect", t.Name(), "--backend",
				srv.URL()); !strings.Contains(o.out, "waits") {
				return errors.New(o.out)
			}
			return nil
		})
		holdfast(t, "release", "--ticket", ticket, "--backend", srv.URL()).want(t, 0)
		o := <-next
		if proxy.Counts().Dropped == 0 {
			holdfast(t, "release", "--ticket", o.want(t, 0).out, "--backend", srv.URL()).want(t, 0)
			continue
		}
		if o.want(t, 77); o.out != "" {
			t.Errorf("prints %s", o.out)
		}
		if o := holdfast(t, "inspect", t.Name(), "--backend", srv.URL()).want(t,
			0); !strings.Contains(o.out, "is free") {
			t.Errorf("it was not released: %s", o.out)
		}
		return
	}
	t.Error("no lease was handed over: this shows nothing")
}

// A store that is dead or silent has not said that the hold has ended: the status is another.
func TestTicketUnknown(t *testing.T) {
	srv := testserver.Redis(t)
	ticket := acquired(t, srv.URL(), "k", "10m")
	srv.Kill()
	for _, verb := range []string{"renew", "check", "release"} {
		if o := holdfast(t, verb, "--ticket", ticket, "--backend", srv.URL()).want(t,
			77); o.out != "" {
			t.Errorf("%s says %s", verb, o.out)
		}
	}
}

// Below a run of the same key acquire would wait for its own parent.
func TestAcquireInARun(t *testing.T) {
	srv := testserver.SharedRedis(t)
	cmd := exec.CommandContext(t.Context(), binary, "run", t.Name(), "--backend", srv.URL(), "--",
		binary, "acquire", t.Name(), "--ttl=1m", "--backend", srv.URL())
	out, _ := cmd.CombinedOutput()
	if statusOf(cmd) != 75 || !strings.Contains(string(out), "it would wait for itself") {
		t.Errorf("status %d: %s", statusOf(cmd), out)
	}
}

// What cannot be done is refused before anything is written, or waited for.
func TestTicketRefusals(t *testing.T) {
	srv := testserver.SharedRedis(t)
	redis := "--backend=" + srv.URL()
	ticket := acquired(t, srv.URL(), t.Name(), "10m")
	defer func() { holdfast(t, "release", "--ticket", ticket, redis).want(t, 0) }()
	folder := t.TempDir() + "/locks"
	for _, c := range []struct{ args, says string }{
		{"acquire k --ttl=1m", "a ticket needs a store that is named"},
		{"acquire k --ttl=1m --backend=file://" + folder, "not to be had on file://"},
		{"acquire k --ttl=1m --backend=FILE://" + folder, "not to be had on file://"},
		{"acquire k --ttl=1m --backend=mem://", "not to be had on mem://"},
		{"acquire k --ttl=1m --backend=" + redlockURL("redis://localhost:1", "redis://localhost:2",
			"redis://localhost:3"), "not to be had on redlock://"},
		{"acquire k --ttl=1m " + redis + "?dialect=string", "Reentrant is not supported"},
		{"acquire k " + redis, "--ttl is missing"},
		{"acquire k --ttl=0s " + redis, "must be positive"},
		{"acquire k --ttl=25h " + redis, "is over 24h"},
		{"acquire k --ttl=1m --wait=1s --no-wait " + redis, "exclude each other"},
		{"acquire k --ttl=1m --wait=0s " + redis, "--wait 0s is not positive"},
		{"acquire k --ttl=1m -o yaml " + redis, "neither text nor json"},
		{"acquire --ttl=1m " + redis, "an argument is missing: it is holdfast acquire KEY --ttl D"},
		{"renew " + redis, "--ticket is empty or missing"},
		{"check --ticket= " + redis, "--ticket is empty or missing"},
		{"release --ticket= " + redis, "--ticket is empty or missing"},
		{"renew --ticket=never " + redis, "or not all of it"},
		{"renew --ticket=bnVsbA " + redis, "or not all of it"}, // null
		// as from a log that is cut
		{"renew --ticket=" + ticket[:len(ticket)-3] + " " + redis, "or not all of it"},
		{"renew k --ticket=" + ticket + " " + redis, "\"k\" is too much"},
		{"acquire k --ttl=1ms " + redis, "--ttl: invalid ttl \"1ms\": is below"},
		{"run k --ttl=1ms " + redis + " true", "--ttl: invalid ttl \"1ms\": is below"},
		{"renew --ticket=" + ticket + " --backend=file://" + folder, "not to be had on file://"},
		{"release k --ticket=" + ticket + " " + redis, "without KEY"},
		{"release --force --ticket=" + ticket + " " + redis, "without KEY"},
		{"release " + redis, "give --ticket, or a KEY"},
	} {
		if o := holdfast(t, strings.Fields(c.args)...).want(t, 2); !strings.Contains(o.err,
			c.says) || o.out != "" || strings.Contains(o.err, ticket) {
			t.Errorf("%s says %s%s", c.args, o.out, o.err)
		}
	}
	o := holdfastWith(t, []string{"HOLDFAST_TTL=1ms"}, "list", redis).want(t, 2)
	if !strings.Contains(o.err, "HOLDFAST_TTL: invalid ttl \"1ms\": is below") {
		t.Errorf("list says %s", o.err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
