package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jmoiron/sqlx"
)

const (
	defaultConns       = 12               // connections of one relayd at most
	otherConns         = 3                // those of them for the beat, notifications and the committer
	migrationConns     = 3                // connections for a migration
	readTimeout        = 2 * time.Second  // without an answer of the server to a statement
	journalReadTimeout = time.Second      // the same for the committer, which callers wait for
	directReadTimeout  = 10 * time.Minute // the same for a migration

	connectTimeout     = "2"  // seconds for connecting, where callers wait
	slowConnectTimeout = "10" // the same where nobody waits
)

// openPostgres opens the pool, and with the direct URL a handle for the serve lock and one
// for migrations.
func (s *Store) openPostgres(ctx context.Context) error {
	s.d = postgresDialect
	dsn, err := postgresDSN(s.opt.URL, connectTimeout)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	direct, err := postgresDSN(cmp.Or(s.opt.DirectURL, s.opt.URL), connectTimeout)
	if err != nil {
		return fmt.Errorf("direct database URL: %w", err)
	}
	s.viaPooler = direct != dsn
	if s.write, err = openPool(ctx, dsn, s.poolSize(), &dialer{readTimeout: readTimeout, shared: s.viaPooler}); err != nil {
		return fmt.Errorf("open postgres %s: %w", s.place(), err)
	}
	s.read, s.readLogin, s.heavyReads = s.write, s.write, newHeavyReads(s.poolSize())
	if err := s.openJournal(ctx, dsn); err != nil {
		return fmt.Errorf("open postgres %s: %w", s.place(), err)
	}
	s.direct, err = s.openDirect(ctx, 0)
	return err
}

// openDirect opens a handle by the direct URL for statements that may take long. They wait for a
// lock for lockTimeout, 0 = for as long as they may take.
func (s *Store) openDirect(ctx context.Context, lockTimeout time.Duration) (*sqlx.DB, error) {
	dsn, err := postgresDSN(cmp.Or(s.opt.DirectURL, s.opt.URL), slowConnectTimeout)
	if err != nil {
		return nil, err
	}
	db, err := openPool(ctx, dsn, migrationConns, &dialer{readTimeout: directReadTimeout, lockTimeout: lockTimeout})
	if err != nil {
		return nil, fmt.Errorf("open postgres by the direct URL: %w", err)
	}
	db.SetMaxIdleConns(0) // needed now and then
	return db, nil
}

// openJournal opens the connection of the committer. It has shorter timeouts than others,
// because callers wait. It stays open however long it is idle, because a new connection
// means that the database may have been unreachable.
func (s *Store) openJournal(ctx context.Context, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	if s.journal, err = openPool(ctx, u.String(), 1, &dialer{readTimeout: journalReadTimeout, shared: s.viaPooler}); err != nil {
		return err
	}
	s.journal.SetConnMaxIdleTime(0)
	return nil
}

// poolSize is how many connections there are for work other than that of the committer.
func (s *Store) poolSize() int { return max(cmp.Or(s.opt.MaxConns, defaultConns)-otherConns, 2) }

// postgresDSN adds the parameters on which the store relies. binary_parameters sends bytes
// unchanged, in one round trip and without named statements, which poolers do not support. The
// connect timeout, in seconds, is a parameter because no context covers dials of the pool; a
// timeout in the address takes precedence.
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

// prepareTx gives a transaction the settings that relayd relies on where they cannot be
// given to a session once: behind a pooler each transaction may have another one.
func (s *Store) prepareTx(q session, timeout time.Duration) error {
	if !s.viaPooler {
		return nil
	}
	_, err := q.q.ExecContext(q.ctx, sessionSettings(true, lockWait(timeout), opTimeout))
	return err
}
