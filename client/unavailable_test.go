package client

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

// keysUnavailable makes the fake relay unable to check keys while the returned value is true: it says so in a
// banner, refuses all keys, and closes the connection when the client tries another method.
func (d *fakeRelay) keysUnavailable() *atomic.Bool {
	away := new(atomic.Bool)
	d.config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		if away.Load() {
			return nil, &ssh.BannerError{Err: errors.New("not now"), Message: "relay: keys cannot be looked up right now\r\n"}
		}
		return nil, nil
	}
	d.config.KeyboardInteractiveCallback = func(ssh.ConnMetadata, ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range d.open {
			c.Close()
		}
		return nil, errors.New("not now")
	}
	return away
}

// TestRelayThatHangsUpAtLoginIsUnreachable: the error has the message of the relay and allows a retry.
func TestRelayThatHangsUpAtLoginIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, _, _ := inMemory(t)
		d.keysUnavailable().Store(true)
		err := dialOnce(t, dialer)
		var e *cli.Error
		if !errors.As(err, &e) || e.Exit != cli.ExitUnreachable || !strings.HasSuffix(err.Error(), "has ended the login: keys cannot be looked up right now") {
			t.Errorf("exit %d, %v", exitOfError(err), err)
		} else if strings.Contains(e.Hint, "address") {
			t.Errorf("hint %q", e.Hint)
		}
		synctest.Wait()
	})
}

// TestLossWhileTheStoreIsAway: relay up keeps reconnecting while the store is down, even after three
// refusals.
func TestLossWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		away := d.keysUnavailable()
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		away.Store(true)
		(<-lines).Close()
		for range 50 {
			select {
			case <-run.lost:
			case <-run.done:
				t.Fatalf("given up: %v", run.err)
			}
		}
		away.Store(false)
		if again := <-run.ready; !again {
			t.Error("not back")
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}
