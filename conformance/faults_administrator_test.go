package conformance

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"relay/relaytest"
)

// misdeed is an action of a database administrator while relayd runs. The function does performs the action, and
// returns a function that reverts it. Reverting does not end the sessions of relayd.
type misdeed struct {
	name string
	full bool // whether the misdeed runs only with RELAY_FAULTS=full
	does func(d *dba) (undo func())
}

var misdeeds = []misdeed{
	{"every session terminated, again and again", false, terminating},
	{"timeouts set for the role", false, roleSets("statement_timeout = '150ms'", "lock_timeout = '100ms'", "idle_in_transaction_session_timeout = '200ms'")},
	{"LOCK TABLE events", true, standing(`LOCK TABLE events IN ACCESS EXCLUSIVE MODE`)},
	{"VACUUM FULL, then CREATE INDEX", true, reworking},
	{"no connection left", false, crowding},
	{"default_transaction_read_only", true, readOnly},
	{"INSERT on events revoked", true, revoking(`INSERT ON events`, appRole)},
	{"INSERT on events revoked while the spool is drained", false, inTurn(terminatingOnce, revoking(`INSERT ON events`, appRole))},
	{"USAGE of the schema revoked", true, revoking(`ALL ON SCHEMA public`, `PUBLIC, pg_database_owner, `+appRole)},
	{"the database renamed", true, renaming},
	{"the password changed", true, password},
}

// TestFaultMisbehavingAdministrator does to Postgres, under load, the things that an administrator may do.
// Callers always get an answer within 5 s, no answered request is missing, and relayd recovers without help.
func TestFaultMisbehavingAdministrator(t *testing.T) {
	t.Parallel()
	d := newDBA(t)
	r := startRelay(t, d.url())
	r.autossh("administered", localServer(t))
	for _, c := range misdeeds {
		if c.full && size(true, false) {
			continue
		}
		l := startLoad(r, "administered", 4, evenly)
		l.more(size(20, 50), 30*time.Second)
		before := d.sessions()
		undo := c.does(d)
		most, slowest, degraded := r.endure(d, size(time.Second, 10*time.Second))
		undo()
		back := l.recovery(time.Now())
		l.end()
		r.waitFor(30*time.Second, "the spool to be empty", func() bool { return r.stats().SpoolBytes == 0 && r.ready() == 200 })
		v := l.check(t)
		figure(t, "%s: %v, by status %v, without answer %d, longest wait %v, of the API %v, sessions %d, at most %d, degraded %v, back after %v",
			c.name, v, l.codes, l.broken, l.longest.Round(10*time.Millisecond), slowest.Round(10*time.Millisecond), before, most, degraded, back.Round(100*time.Millisecond))
		switch {
		case !v.ok():
			t.Errorf("%s: lost: %v", c.name, v)
		case l.longest > bound(outageAnswer) || slowest > bound(outageAnswer):
			t.Errorf("%s: a caller waited %v, one of the API %v", c.name, l.longest, slowest)
		case l.codes[503] > 0 || l.broken > 0:
			t.Errorf("%s: %d answers 503, %d without answer", c.name, l.codes[503], l.broken)
		case back > bound(5*time.Second):
			t.Errorf("%s: full service took %v after it was over", c.name, back)
		case most > before+40:
			t.Errorf("%s: %d sessions at Postgres, %d before", c.name, most, before)
		}
	}
}

// endure calls the API repeatedly for the given time, during an outage. It returns the largest number of
// Postgres sessions of relayd, the longest time that the API took to answer, and whether /readyz reported at
// least once that events go to the spool.
func (r *relayServer) endure(d *dba, lasts time.Duration) (most int, slowest time.Duration, degraded bool) {
	r.t.Helper()
	for begun := time.Now(); time.Since(begun) < lasts; <-time.After(50 * time.Millisecond) {
		var readers sync.WaitGroup
		asked := time.Now()
		for range 4 {
			readers.Go(func() { r.api("GET", "/events?limit=5", nil) })
		}
		degraded = r.degraded() || degraded
		readers.Wait()
		slowest = max(slowest, time.Since(asked))
		most = max(most, d.sessions())
	}
	return most, slowest, degraded
}

func terminating(d *dba) (undo func()) {
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			d.terminate()
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() { close(stop); work.Wait() }
}

// terminatingOnce ends every session of relayd once. There is nothing to revert.
func terminatingOnce(d *dba) func() {
	d.terminate()
	return func() {}
}

// inTurn returns an action that runs several actions one after another, and undoes them in reverse order.
func inTurn(list ...func(*dba) func()) func(*dba) func() {
	return func(d *dba) func() {
		var undo []func()
		for _, does := range list {
			undo = append(undo, does(d))
		}
		return func() {
			for _, u := range slices.Backward(undo) {
				u()
			}
		}
	}
}

// roleSets returns an action that changes settings of the role of relayd. The action also ends all sessions of
// relayd, because only new sessions get the settings.
func roleSets(settings ...string) func(*dba) func() {
	return func(d *dba) func() {
		for _, s := range settings {
			d.do(`ALTER ROLE ` + appRole + ` SET ` + s)
		}
		d.terminate()
		return func() { d.do(`ALTER ROLE ` + appRole + ` RESET ALL`) }
	}
}

// standing returns an action that runs statements in a transaction. The transaction stays open until the
// action is undone.
func standing(statements ...string) func(*dba) func() {
	return func(d *dba) func() {
		tx, err := d.db.Begin()
		if err != nil {
			d.t.Fatal(err)
		}
		for _, s := range statements {
			if _, err := tx.Exec(s); err != nil {
				d.t.Fatalf("%s: %v", s, err)
			}
		}
		return func() { _ = tx.Rollback() }
	}
}

func reworking(d *dba) func() {
	today := time.Now().UTC().Format("_20060102")
	d.do(`VACUUM FULL events`, `VACUUM FULL attempts`)
	return standing(`CREATE INDEX misdeed_events ON events`+today+` (host)`, `CREATE INDEX misdeed_attempts ON attempts`+today+` (actor)`)(d)
}

func crowding(d *dba) func() {
	d.do(`ALTER ROLE ` + appRole + ` CONNECTION LIMIT 0`)
	d.terminate()
	return func() { d.do(`ALTER ROLE ` + appRole + ` CONNECTION LIMIT -1`) }
}

func readOnly(d *dba) func() {
	d.do(`ALTER DATABASE app SET default_transaction_read_only = on`)
	d.terminate()
	return func() {
		tx, err := d.db.Begin()
		if err == nil {
			_, err = tx.Exec(`SET TRANSACTION READ WRITE`)
		}
		if err == nil {
			_, err = tx.Exec(`ALTER DATABASE app RESET default_transaction_read_only`)
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			d.t.Error(err)
		}
	}
}

func revoking(what, from string) func(*dba) func() {
	return func(d *dba) func() {
		d.do(`REVOKE ` + what + ` FROM ` + from)
		return func() { d.do(`GRANT ` + what + ` TO ` + from) }
	}
}

func renaming(d *dba) func() {
	outside, err := sql.Open("postgres", d.address("relay", "", "postgres"))
	if err != nil {
		d.t.Fatal(err)
	}
	rename := func(from, to string) {
		d.t.Helper()
		d.db.SetMaxIdleConns(0)
		relaytest.Until(d.t, 10*time.Second, "the database to be renamed", func() bool {
			_, _ = outside.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '` + from + `'`)
			_, err = outside.Exec(fmt.Sprintf(`ALTER DATABASE %s RENAME TO %s`, from, to))
			return err == nil
		})
		d.db.SetMaxIdleConns(2)
	}
	rename("app", "elsewhere")
	home := d.db
	d.db = outside
	return func() {
		rename("elsewhere", "app")
		d.db = home
		_ = outside.Close()
	}
}

// password makes Postgres require a password, and then changes the password.
func password(d *dba) func() {
	var hba string
	if err := d.db.QueryRow(`SHOW hba_file`).Scan(&hba); err != nil {
		d.t.Fatal(err)
	}
	old, err := os.ReadFile(hba)
	if err == nil {
		err = os.WriteFile(hba, []byte("local all "+appRole+" scram-sha-256\n"+string(old)), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.do(`SELECT pg_reload_conf()`, `ALTER ROLE `+appRole+` PASSWORD 'second'`)
	relaytest.Until(d.t, 10*time.Second, "the password to be asked for", func() bool {
		db, err := sql.Open("postgres", d.url())
		if err != nil {
			d.t.Fatal(err)
		}
		defer db.Close()
		return db.Ping() != nil
	})
	d.terminate()
	return func() { d.do(`ALTER ROLE ` + appRole + ` PASSWORD '` + appPassword + `'`) }
}
