package pgbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

func init() {
	backend.Register("postgres", open)
	backend.Register("postgresql", open)
}

// DefaultTable is where locks are kept if nothing else is said.
const DefaultTable = "holdfast_locks"

// A Config says how a database is used. The zero Config is for one that is reached without a
// pooler.
type Config struct {
	// Table is where the locks are: lower-case letters, digits and underscores, or two such names
	// with a dot between them, the first of which is a schema. Default [DefaultTable].
	Table string

	// Poll, if it is not 0, has what somebody waits for read so often, and no connection listen:
	// for a pooler that gives each transaction another connection, as PgBouncer does.
	Poll time.Duration
}

// Backend keeps locks in a table.
type Backend struct {
	*record.Backend
	store *store
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend on a program's pool, which stays the program's to close, after the backend.
// It asks the server once: it makes the table if that is missing (a missing right is a
// *[RightsError]), and refuses to work without synchronous commits ([backend.ErrUnsafe]), or on a
// standby. Backends of one table keep the same locks. While anybody waits or observes, one
// connection of the pool listens.
func New(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Backend, error) {
	s, use, err := newStore(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return &Backend{record.New(s, use), s}, nil
}

func newStore(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*store, record.Config, error) {
	cfg.Table = cmp.Or(cfg.Table, DefaultTable)
	if err := cfg.validate(); err != nil {
		return nil, record.Config{}, err
	}
	s := &store{
		pool: pool, table: cfg.quoted(), poll: cfg.Poll != 0, sql: statementsOn(cfg.quoted()),
		last: map[string]remembered{}, turns: map[string]chan struct{}{},
	}
	identity, err := s.check(ctx)
	use := record.Config{
		Name: "postgres", Skew: skew, Poll: cfg.Poll, Keys: s.keys,
		Identity: identity, Close: s.close,
	}
	if cfg.Poll == 0 {
		use.Watch = s.watch
	}
	return s, use, err
}

// Compiled when they are first needed: who imports all backends, to choose one, opens one.
var (
	tableForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$`)
	})
	parameterForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z_.]+$`)
	})
)

func (cfg *Config) validate() error {
	switch {
	case !tableForm().MatchString(cfg.Table):
		return &backend.InvalidError{
			Field: "lock_table", Value: cfg.Table,
			Reason: "is not a name of lower-case letters, digits and _, nor two such names with " +
				"a dot between them",
		}
	case cfg.Poll != 0 && (cfg.Poll < time.Millisecond || cfg.Poll > time.Minute):
		return &backend.InvalidError{
			Field: "poll", Value: cfg.Poll.String(),
			Reason: "is not between 1ms and 1m",
		}
	}
	return nil
}

// quoted is the table's name in a statement, which may be a word of SQL's.
func (cfg *Config) quoted() string {
	return pgx.Identifier(strings.Split(cfg.Table, ".")).Sanitize()
}

// open serves postgres://, with a pool of its own.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	settings, cfg, err := parse(u)
	if err != nil {
		return nil, err
	}
	pooled, err := pgxpool.ParseConfig(settings)
	if err != nil { // whose text has the settings
		return nil, &backend.InvalidError{
			Field:  "url",
			Reason: "cannot be used: " + cmp.Or(errors.Unwrap(err), errMalformed).Error(),
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, pooled)
	if err != nil {
		return nil, explain(err)
	}
	b, err := New(ctx, pool, cfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	b.store.owned = true
	return b, nil
}

var errMalformed = errors.New("a setting has a wrong form")

// parse makes settings for pgx of a URL, and takes those that are ours out of its query.
func parse(u *url.URL) (settings string, cfg Config, err error) {
	invalid := func(reason string) (string, Config, error) {
		return "", Config{}, &backend.InvalidError{Field: "url", Reason: reason}
	}
	if u.Fragment != "" {
		return invalid("has a #fragment; percent-encode special characters of a password")
	}
	var text strings.Builder
	set := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%s='%s' ", name,
				strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value))
		}
	}
	var hosts, ports []string
	for host := range strings.SplitSeq(u.Host, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), "5432"
		}
		hosts, ports = append(hosts, name), append(ports, cmp.Or(port, "5432"))
	}
	if u.Host != "" {
		set("host", strings.Join(hosts, ","))
		set("port", strings.Join(ports, ","))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		set("user", u.User.Username())
		set("password", password)
	}
	set("dbname", strings.TrimPrefix(u.Path, "/"))
	query := u.Query()
	if len(hosts) > 1 && !query.Has("target_session_attrs") {
		set("target_session_attrs", "read-write") // the primary of them
	}
	for name, values := range query {
		switch {
		case len(values) != 1 || values[0] == "":
			return invalid("has a query parameter twice, or without a value")
		case name == "lock_table":
			cfg.Table = values[0]
		case name == "poll":
			if cfg.Poll, err = time.ParseDuration(values[0]); err != nil || cfg.Poll == 0 {
				return "", cfg, &backend.InvalidError{
					Field: "poll", Value: values[0],
					Reason: "is not a duration such as 250ms",
				}
			}
		case !parameterForm().MatchString(name):
			return invalid("has a query parameter whose name has other characters than a-z and _")
		default:
			set(name, values[0])
		}
	}
	cfg.Table = cmp.Or(cfg.Table, DefaultTable)
	err = cfg.validate()
	return text.String(), cfg, err
}

// A RightsError says what the user is not allowed to do, and which statement of an administrator
// would change that. It is [backend.ErrDenied].
type RightsError struct {
	Statement string // as the administrator has to execute it
}

// Error says what to execute.
func (e *RightsError) Error() string {
	return fmt.Sprintf("%v: an administrator has to execute: %s", backend.ErrDenied, e.Statement)
}

// Is makes errors.Is(err, backend.ErrDenied) true.
func (e *RightsError) Is(target error) bool { return target == backend.ErrDenied }

// definition makes the table.
//
// A key that is locked again and again has its row updated in place. Half of each page is free for
// that, so the new version of a row is on the page of the old one, no index has to be told (a HOT
// update), and whoever comes next clears the old one away. What is left for vacuum is the rows that
// were deleted; it comes after 1,000 of them or so, however many rows there are.
const definition = `CREATE TABLE IF NOT EXISTS %s (key bytea PRIMARY KEY, value bytea NOT NULL) ` +
	`WITH (fillfactor = 50, ` +
	`autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02)`

// check sees that the table is there and may be used, and that a commit lasts. It returns what
// tells the table from every other of the world.
func (s *store) check(ctx context.Context) (identity string, err error) {
	// More than once: who makes a table at the same time as others may be told that it is there.
	for range 10 {
		var there, standby, may bool
		var commit string
		sent, now := time.Now(), time.Time{}
		err = s.ask(ctx, `SELECT clock_timestamp(), to_regclass($1) IS NOT NULL,
				pg_is_in_recovery(), current_setting('synchronous_commit'),
				coalesce((
					SELECT bool_and(has_table_privilege(to_regclass($1), r))
					FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
				), false),
				(SELECT system_identifier FROM pg_control_system())::text
					|| '/' || current_database() || '/' || $1`,
			[]any{s.table}, &now, &there, &standby, &commit, &may, &identity)
		s.heard(sent, now)
		switch {
		case isCode(err, "42501"): // the schema
			return "", s.rights(true)
		case err != nil:
			return "", err
		case standby:
			return "", fmt.Errorf("%w: the server is a standby, and takes no writes",
				backend.ErrNotServing)
		case commit == "off":
			return "", fmt.Errorf("%w: synchronous_commit is off, so a crash of the server takes "+
				"the last commits; "+
				"set it for this user (ALTER ROLE … SET synchronous_commit = on) or in the URL "+
				"(?synchronous_commit=on)", backend.ErrUnsafe)
		case there && !may:
			return "", s.rights(false)
		case there:
			return identity, nil
		}
		_, err = s.pool.Exec(ctx, fmt.Sprintf(definition, s.table))
		if isCode(err, "42501") || isCode(err, "3F000") { // no right; no such schema
			return "", s.rights(true)
		}
	}
	return "", explain(err)
}

// rights says what an administrator has to execute: all, or the last of it.
func (s *store) rights(all bool) error {
	user := pgx.Identifier{s.pool.Config().ConnConfig.User}.Sanitize()
	statement := "GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.table + " TO " + user
	if all {
		statement = fmt.Sprintf(definition, s.table) + "; " + statement
	}
	if schema, _, named := strings.Cut(s.table, "."); all && named {
		statement = fmt.Sprintf(
			"CREATE SCHEMA IF NOT EXISTS %s; GRANT USAGE ON SCHEMA %[1]s TO %s; %s", schema, user,
			statement)
	}
	return &RightsError{statement}
}
