package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
)

// A peer that has vanished is found out in synthetic time: the timers of got count
// as well, so waits that last long go straight to the channels.

// blocked makes connects hang while the switch is on, as where packets are dropped.
func blocked(dialer *Dialer) *atomic.Bool {
	on := new(atomic.Bool)
	open := dialer.connect
	dialer.connect = func(ctx context.Context, addr string) (net.Conn, error) {
		if on.Load() { // this packet is lost, whatever comes later
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return open(ctx, addr)
	}
	return on
}

func TestSilentPeerIsGivenUpWhenAFreshConnectionIsGreeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		time.Sleep(10 * time.Minute) // a quiet tunnel lives on pings
		if len(run.lost) > 0 {
			t.Fatal("lost while all was well")
		}
		(<-lines).freeze()
		begun := time.Now()
		<-run.lost
		if after := time.Since(begun); after < silentAfter-pingEvery || after > 7*time.Second {
			t.Errorf("given up after %v", after)
		}
		<-run.ready
		if after := time.Since(begun); after > 7*time.Second {
			t.Errorf("back after %v", after)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestBackWithinASecondOfTheWayBeingFree(t *testing.T) {
	for _, gap := range []time.Duration{7 * time.Second, 20 * time.Second, 100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			_, dialer, lines, _ := inMemory(t)
			cut := blocked(dialer)
			run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
			got(t, "ready", run.ready)
			(<-lines).freeze()
			cut.Store(true)
			time.Sleep(gap)
			free := time.Now()
			cut.Store(false)
			<-run.ready
			if after := time.Since(free); after > time.Second {
				t.Errorf("after a gap of %v it took %v", gap, after)
			}
			if gap < silentAfter+graceAfter-pingEvery && len(run.lost) != 1 || len(run.lost) == 0 {
				t.Errorf("gap of %v: lost %d times", gap, len(run.lost))
			}
			_ = run.stop(t)
			synctest.Wait()
		})
	}
}

func TestChangedNetworkMakesTheConnectionProveItself(t *testing.T) {
	why := Errorf(ExitUnreachable, "the network has changed")
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		line := <-lines
		for range 20 {
			run.changes <- why
			time.Sleep(time.Second)
		}
		if len(run.lost) > 0 {
			t.Fatal("a connection that answers was given up")
		}
		line.freeze()
		begun := time.Now()
		run.changes <- why
		<-run.lost
		<-run.ready
		if after := time.Since(begun); after > time.Second {
			t.Errorf("back after %v", after)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestChangedNetworkEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, up := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		up.Store(false)
		(<-lines).Close()
		for next := range run.lost {
			if next > 5*time.Second {
				break
			}
		}
		up.Store(true)
		begun := time.Now()
		run.changes <- errAsleep
		<-run.ready
		if after := time.Since(begun); after > 100*time.Millisecond {
			t.Errorf("back after %v", after)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestRefusedLoginIsBelievedAfterAFewTimes(t *testing.T) {
	for fails, final := range map[int64]bool{doubtTimes: false, 1000: true} {
		synctest.Test(t, func(t *testing.T) {
			d, dialer, lines, _ := inMemory(t)
			run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
			got(t, "ready", run.ready)
			var left atomic.Int64
			left.Store(fails)
			d.config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
				if left.Add(-1) >= 0 {
					return nil, errors.New("no")
				}
				return nil, nil
			}
			(<-lines).Close()
			if final {
				<-run.done
				if exitOf(run.err) != ExitRefused {
					t.Errorf("%v", run.err)
				}
				if n := len(run.lost); n != 1+doubtTimes {
					t.Errorf("%d tries were announced", n)
				}
			} else if !<-run.ready {
				t.Error("not back")
			}
			_ = run.stop(t)
			synctest.Wait()
		})
	}
}

func TestRevokedLoginEndsForGood(t *testing.T) {
	d := newDouble(t)
	d.script = func(c *doubleConn, say func(string)) {
		say(`{"type":"online","alias":"stripe-dev","url":"https://x"}`)
		say(`{"type":"revoked","message":"this key was removed"}`)
	}
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	if err := run.end(t); exitOf(err) != ExitRefused {
		t.Error(err)
	}
}

func TestRelayThatRunsAgainIsFoundWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, up := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		up.Store(false)
		(<-lines).Close()
		for next := range run.lost {
			if next > 8*time.Second {
				break
			}
		}
		up.Store(true)
		begun := time.Now()
		<-run.ready
		if after := time.Since(begun); after > knockEvery {
			t.Errorf("back after %v", after)
		}
		_ = run.stop(t)
		synctest.Wait()
	})
}

func TestChangedHostKeyEndsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, dialer, lines, _ := inMemory(t)
		run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
		got(t, "ready", run.ready)
		d.config = &ssh.ServerConfig{PublicKeyCallback: d.config.PublicKeyCallback}
		d.config.AddHostKey(newSigner(t))
		(<-lines).Close()
		<-run.done
		if exitOf(run.err) != ExitRefused {
			t.Errorf("%v", run.err)
		}
		synctest.Wait()
	})
}

func TestFreshConnectionIsNotHeldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dialer, lines, _ := inMemory(t)
		conn, err := dialer.reach(t.Context(), "127.0.0.1:2222")
		if err != nil {
			t.Fatal(err)
		}
		dialer.keep(conn)
		time.Sleep(spareFor + time.Second)
		if dialer.take() != nil {
			t.Error("given out although the relay has given it up")
		}
		if _, err := (<-lines).Write(nil); err == nil {
			t.Error("still open")
		}
		synctest.Wait()
	})
}

func TestPollingHintsUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hints := make(chan struct{}, 1)
		done := make(chan struct{})
		go func() { pollHints(ctx, hints); close(done) }()
		<-hints
		<-hints
		cancel()
		<-done
	})
}
