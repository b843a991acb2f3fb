package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/lib/pq"
)

const (
	poolSize  = 16 // connections of one relayd for its work; two of them commit
	lockSize  = 3
	silence   = 2 * time.Second  // of the server in the middle of a statement
	quiet     = time.Second      // the same for what callers wait for
	stillness = 10 * time.Minute // the same for a migration

	soon = "2"  // seconds until a connection is there, where callers wait for it
	late = "10" // the same where nobody does
)

// openPostgres opens the pool, and past a pooler a handle for the serve lock and one
// for migrations.
func (s *Store) openPostgres(ctx context.Context) error {
	s.d = postgresDialect
	dsn, err := postgresDSN(s.opt.URL, soon)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	by := s.opt.URL
	if s.opt.DirectURL != "" {
		by = s.opt.DirectURL
	}
	direct, err := postgresDSN(by, soon)
	if err != nil {
		return fmt.Errorf("direct database URL: %w", err)
	}
	s.pooled = direct != dsn
	unhurried, _ := postgresDSN(by, late) // as good as direct
	if s.write, err = openPoolBy(ctx, dsn, poolSize, &dialer{silence: silence, shared: s.pooled}); err != nil {
		return fmt.Errorf("open postgres %s: %w", s.place(), err)
	}
	s.read = s.write
	if err := s.openJournal(ctx, dsn); err != nil {
		return fmt.Errorf("open postgres %s: %w", s.place(), err)
	}
	if s.direct, err = openPool(ctx, unhurried, lockSize, stillness); err != nil {
		return fmt.Errorf("open postgres by the direct URL: %w", err)
	}
	s.direct.SetMaxIdleConns(0) // needed now and then
	if s.locks, err = openPool(ctx, direct, lockSize, silence); err != nil {
		return fmt.Errorf("open postgres by the direct URL: %w", err)
	}
	return nil
}

// postgresDSN adds what the store relies on: binary_parameters sends bytes as they
// are, in one round trip and without named statements (poolers); the connect
// timeout, in seconds, has to be here because a context does not cover dials of the
// pool; one in the address wins.
func postgresDSN(address, connect string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("not a valid address") // url's error would repeat the password
	}
	q := u.Query()
	q.Set("binary_parameters", "yes")
	for name, value := range map[string]string{"connect_timeout": connect, "sslmode": "prefer", "application_name": "relayd"} {
		if !q.Has(name) {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

const (
	partitionsAhead  = 7
	partitionLock    = 0x72656c6179 // advisory lock under which partitions are made
	partitionTimeout = 30 * time.Second
)

var partitioned = []struct{ table, options string }{
	{"events", " WITH (fillfactor = 90)"},
	{"attempts", " WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02)"},
	{"payloads", ""},
	{"body_chunks", ""},
}

// makePartitions makes the days from yesterday to a week ahead, one range of
// UUIDv7 each; what falls outside goes to the DEFAULT partitions.
func (s *Store) makePartitions(ctx context.Context, now time.Time) error {
	if !s.d.bulk {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, partitionTimeout)
	defer cancel()
	day := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	for range partitionsAhead + 2 {
		err := s.makeDay(ctx, day)
		var e *pq.Error
		switch {
		case errors.As(err, &e) && e.Code == "23514": // check_violation: DEFAULT holds rows of that day already
			s.log.Warn("a day stays in the default partition, where a wrong clock put some of it", "day", day.Format(time.DateOnly))
		case err != nil:
			return fmt.Errorf("make partitions of %s: %w", day.Format(time.DateOnly), err)
		}
		day = day.AddDate(0, 0, 1)
	}
	return nil
}

// makeDay makes the partitions of one day that are not there yet. Names in DDL
// cannot be parameters; these consist of constants and digits.
func (s *Store) makeDay(ctx context.Context, day time.Time) error {
	var have int
	last := partitioned[len(partitioned)-1].table + day.Format("_20060102")
	if err := s.direct.GetContext(ctx, &have, `SELECT count(*) FROM pg_class WHERE oid = to_regclass($1)`, last); err != nil || have > 0 {
		return err
	}
	tx, err := s.direct.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1, hashtext(current_schema()))`, partitionLock&0x7fffffff)
	for _, p := range partitioned {
		if err != nil {
			break
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')%s`,
			p.table+day.Format("_20060102"), p.table, lowestUUID(day), lowestUUID(day.AddDate(0, 0, 1)), p.options))
	}
	if err != nil {
		return errors.Join(err, rollback(tx))
	}
	return tx.Commit()
}

// prepareTx gives a transaction the settings that relayd relies on where they cannot be
// given to a session once: behind a pooler each transaction may have another one.
func (s *Store) prepareTx(q session, silence time.Duration) error {
	if !s.pooled {
		return nil
	}
	_, err := q.q.ExecContext(q.ctx, sessionSettings(true, lockWait(silence)))
	return err
}

// checkDurability warns when the engine was told not to wait for the disk: a commit
// would then promise more than it keeps. synchronous_commit is no matter, see sessionSettings.
func (s *Store) checkDurability(ctx context.Context) error {
	bad := map[string]string{`PRAGMA journal_mode`: "memory", `PRAGMA synchronous`: "0"}
	if s.d.bulk {
		bad = map[string]string{`SHOW fsync`: "off", `SHOW full_page_writes`: "off"}
	}
	for query, value := range bad {
		var got string
		if err := s.write.GetContext(ctx, &got, query); err != nil {
			return s.fault("check durability", err)
		}
		if got == value {
			s.log.Warn("the database does not make commits durable: a power loss may lose events that were answered", "setting", query, "value", got)
		}
	}
	return nil
}

// lowestUUID is the lowest UUID of a millisecond, in text form.
func lowestUUID(t time.Time) string {
	ms := t.UnixMilli()
	return fmt.Sprintf("%08x-%04x-0000-0000-000000000000", ms>>16, ms&0xffff)
}
