package testserver

// An Option changes how a server is started.
type Option func(*config)

type config struct {
	args     []string // after our own, so that they win
	password string
	tls      bool
	port     int
	dir      string
	sentinel string // the configuration file of a sentinel, which rewrites it
	replicas int    // of each primary of a cluster
	program  string // of the server; empty for the usual one
	env      []string
	each     func() Option // of each server of several
	auth     string        // the kind of token of an etcd that knows users
}

// WithArgs adds redis-server arguments, such as "--maxmemory", "5mb". They override what the
// package sets.
func WithArgs(args ...string) Option { return func(c *config) { c.args = append(c.args, args...) } }

// WithPassword asks every client for a password (requirepass). URL contains it, and Do uses it.
func WithPassword(password string) Option { return func(c *config) { c.password = password } }

// WithTLS serves TLS only, under a CA made for this server; see [Server.TLS]. Clients may show a
// certificate, and one that they show must be good. WithArgs("--tls-auth-clients", "yes") demands
// one.
func WithTLS() Option { return func(c *config) { c.tls = true } }

// WithPort listens on this port of 127.0.0.1. Without it a free one is taken, and another if that
// was lost to a race.
func WithPort(port int) Option { return func(c *config) { c.port = port } }

// WithProgram starts this redis-server or valkey-server, and not the usual one.
func WithProgram(path string) Option { return func(c *config) { c.program = path } }

// WithEnv adds variables, such as "LD_PRELOAD=/tmp/x.so", to the environment of a redis-server.
func WithEnv(variables ...string) Option {
	return func(c *config) { c.env = append(c.env, variables...) }
}

// WithEach gives each of several servers an option of its own.
func WithEach(option func() Option) Option { return func(c *config) { c.each = option } }

// WithReplicas gives each primary of a [Cluster] n replicas.
func WithReplicas(n int) Option { return func(c *config) { c.replicas = n } }

// WithEtcdAuth has an etcd know users. Whoever logs in is handed a token: a "simple" one, which a
// member draws and the others learn of, or a "jwt", which is signed and good for ten minutes. With
// "" it knows no users. WithArgs("--auth-token-ttl", "5") has it forget simple tokens that were not
// used for five seconds. A log-in takes the server less time than it would elsewhere. See
// [EtcdSet.Userinfo].
func WithEtcdAuth(token string) Option { return func(c *config) { c.auth = token } }
