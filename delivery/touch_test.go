package delivery_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// frozenTunnels is a store that stores no tunnels until thawed is true.
type frozenTunnels struct {
	*memStore
	thawed atomic.Bool
}

func (s *frozenTunnels) StoreTunnels(ctx context.Context, writes []relay.TunnelWrite) ([]relay.TunnelRecord, error) {
	if s.thawed.Load() {
		return s.memStore.StoreTunnels(ctx, writes)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestManyTunnelsHoldNothingUp: while the store takes no records of 300 new tunnels, a change of settings is
// in force at once, and Close takes at most 5 s. Once it takes them, all are stored in at most three calls.
func TestManyTunnelsHoldNothingUp(t *testing.T) {
	const many = 300
	var s *frozenTunnels
	run(t, nil, func(b *fixture) {
		tun := &memTunnel{serve: slow}
		for id := range int64(many) {
			a, ok := b.d.Alias(fmt.Sprint("many", id))
			if !ok {
				t.Fatal("alias unknown")
			}
			b.d.Attach(a, tun)
		}
		synctest.Wait()
		begin := time.Now()
		b.s.change(7, func(s *relay.Settings) { s.Paused = true })
		if a, _ := b.d.Alias("hook"); !a.Settings.Paused || time.Since(begin) > 0 {
			t.Errorf("the change is in force %v after %v", a.Settings.Paused, time.Since(begin))
		}
		s.thawed.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(b.s.touched); n != many {
			t.Errorf("%d of %d noted once the store was back", n, many)
		}
		if b.s.touches > 3 {
			t.Errorf("%d calls of the store for %d tunnels", b.s.touches, many)
		}
		s.thawed.Store(false)
		for id := range int64(many) {
			a, _ := b.d.Alias(fmt.Sprint("many", id))
			b.d.Attach(a, tun)
		}
		begin = time.Now()
		if err := b.d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
	}, func(b *fixture) {
		for id := range int64(many) {
			b.s.aliases[1000+id] = &relay.Alias{ID: 1000 + id, Name: fmt.Sprint("many", id), Owner: 1, Settings: relay.DefaultSettings()}
		}
		s = &frozenTunnels{memStore: b.s}
		b.opt.Store = s
	})
}

// slowCount is a store that takes a second to count queues.
type slowCount struct {
	*memStore
	n atomic.Int64
}

func (s *slowCount) QueueStats(ctx context.Context, ids []int64) (map[int64]relay.QueueStats, error) {
	s.n.Add(1)
	time.Sleep(time.Second)
	return s.memStore.QueueStats(ctx, ids)
}

// TestLongQueuesAreNotCountedAllTheTime: if a count takes a second and the queue changes all the time, the
// queue is counted about ten times a minute.
func TestLongQueuesAreNotCountedAllTheTime(t *testing.T) {
	var s *slowCount
	run(t, nil, func(b *fixture) {
		before := s.n.Load()
		for range 600 {
			b.d.Publish([]relay.Change{{Kind: relay.ChangeQueue, Alias: 7}})
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.n.Load() - before; n < 8 || n > 12 {
			t.Errorf("counted %d times in a minute", n)
		}
		before = s.n.Load()
		time.Sleep(time.Minute)
		if n := s.n.Load() - before; n > 1 {
			t.Errorf("counted %d times with nothing to count", n)
		}
	}, func(b *fixture) {
		s = &slowCount{memStore: b.s}
		b.opt.Store = s
	})
}
