package conformance

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// TestStopOnFrozenPostgres: while Postgres does not answer, a starting relayd ends soon after SIGTERM, and at
// once after a second signal. An operator command ends by its own timeout.
func TestStopOnFrozenPostgres(t *testing.T) {
	t.Parallel()
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL)
	r.stop(syscall.SIGTERM)
	frozen(t, pg)
	t.Run("during the start", func(t *testing.T) {
		p := r.spawn()
		r.waitFor(20*time.Second, "a connection to Postgres", func() bool { return r.descriptors()["socket"] > 0 })
		begun := time.Now()
		r.stop(syscall.SIGTERM)
		took := time.Since(begun)
		figure(t, "SIGTERM during the start to exit %v, exit code %d", took.Round(10*time.Millisecond), p.Cmd.ProcessState.ExitCode())
		if took > bound(stopLonger) {
			t.Errorf("the stop took %v", took)
		}
	})
	t.Run("second signal", func(t *testing.T) {
		p := r.spawn()
		r.waitFor(20*time.Second, "a connection to Postgres", func() bool { return r.descriptors()["socket"] > 0 })
		begun := time.Now()
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		for !p.HasEnded() { // the signal is repeated, because two pending signals may arrive as one
			_ = p.Cmd.Process.Signal(syscall.SIGINT)
			<-time.After(50 * time.Millisecond)
		}
		took := time.Since(begun)
		figure(t, "second signal to exit %v, exit code %d", took.Round(10*time.Millisecond), p.Cmd.ProcessState.ExitCode())
		if took > bound(time.Second) {
			t.Errorf("the stop took %v", took)
		}
	})
	for _, args := range [][]string{{"user", "list"}, {"migrate"}, {"migrate", "status"}, {"alias", "list"}, {"audit"}, {"token", "add", "--user", "admin"}, {"doctor"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(relaytest.Program(t, "relayd"), args...)
			cmd.Env = r.env()
			p := relaytest.Start(t, cmd)
			begun := time.Now()
			code := p.Code(t, 60*time.Second)
			took := time.Since(begun)
			figure(t, "relayd %v: exit code %d after %v: %.300s", args, code, took.Round(10*time.Millisecond), p.Out.String())
			if code == 0 || took > bound(20*time.Second) {
				t.Errorf("exit code %d after %v", code, took)
			}
		})
	}
}

// TestStopBehindALock: SIGTERM soon ends a starting relayd, a migration and an operator command that wait for
// a database lock of another session.
func TestStopBehindALock(t *testing.T) {
	t.Parallel()
	d := newDBA(t)
	r := startRelay(t, d.url())
	r.stop(syscall.SIGTERM)
	defer standing(`LOCK TABLE goose_db_version IN ACCESS EXCLUSIVE MODE`)(d)()
	for _, args := range [][]string{{"serve"}, {"migrate"}, {"user", "list"}} {
		t.Run(args[0], func(t *testing.T) {
			cmd := exec.Command(relaytest.Program(t, "relayd"), args...)
			cmd.Env = r.env()
			p := relaytest.Start(t, cmd)
			r.process.set(p)
			r.waitFor(20*time.Second, "a connection to Postgres", func() bool { return p.HasEnded() || r.descriptors()["socket"] > 0 })
			begun := time.Now()
			r.stop(syscall.SIGTERM)
			took := time.Since(begun)
			figure(t, "%v: SIGTERM to exit %v, exit code %d", args, took.Round(10*time.Millisecond), p.Cmd.ProcessState.ExitCode())
			if took > bound(stopLonger) {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}
