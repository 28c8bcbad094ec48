package pgbackend

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// diagnoseTimeout bounds what Diagnose asks beside notices, as record does each call of a store.
const diagnoseTimeout = 5 * time.Second

// Diagnose looks at what keeps commits, and whether notices arrive, as [backend.Backend] says.
func (b *Backend) Diagnose(ctx context.Context) (all []backend.Finding, err error) {
	// A backend that is closed has no identity any more.
	if _, err := b.Identity(ctx); err != nil { // safeguard: pg-diagnose-closed
		return nil, err
	}
	find := func(check string, level backend.Level, text, change string) {
		all = append(all, backend.Finding{Check: check, Level: level, Text: text, Change: change})
	}
	var version, sync, pages, names string
	var standbys int
	bounded, cancel := context.WithTimeout(ctx, diagnoseTimeout) // safeguard: pg-diagnose-silent
	defer cancel()
	err = b.store.ask(bounded, `SELECT current_setting('server_version'), current_setting('fsync'),
			current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
			(SELECT count(*) FROM pg_stat_replication)`,
		nil, &version, &sync, &pages, &names, &standbys)
	if err != nil {
		return nil, err
	}
	find("version", backend.OK, "PostgreSQL "+version, "")
	if sync == "off" || pages == "off" {
		find("durability", backend.Fail, "a loss of power can take locks that were granted",
			"set fsync and full_page_writes to on")
	} else {
		find("durability", backend.OK, "what is committed outlives a crash", "")
	}
	if standbys > 0 && names == "" {
		find("standbys", backend.Warn,
			fmt.Sprintf("%d, none of which is synchronous: a failover can lose the last locks",
				standbys),
			"set synchronous_standby_names")
	}
	if b.store.poll {
		return all, nil
	}
	conn, err := b.store.listen(ctx)
	if err != nil {
		find("notices", backend.Warn, "who waits is not told, and asks from time to time: "+
			err.Error(), "open with poll=250ms, or without a pooler")
		return all, nil
	}
	hangUp(conn)
	find("notices", backend.OK, "they arrive", "")
	return all, nil
}
