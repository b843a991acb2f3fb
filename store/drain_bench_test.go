//go:build unix

package store_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

// Sizes of the queues of BenchmarkDrain.
const (
	drainAliases = 100
	drainQueued  = 100
)

// BenchmarkDrain measures the number of queued attempts that 100 dispatchers, one for each alias,
// claim and end per second, while senders of live events write at the same time.
func BenchmarkDrain(b *testing.B) {
	engines := map[string]func(testing.TB) store.Options{
		"sqlite": func(t testing.TB) store.Options { return store.Options{DataDir: t.TempDir()} },
		"postgres": func(t testing.TB) store.Options {
			return store.Options{URL: pgtest.DurableURL(t), DataDir: t.TempDir()}
		},
	}
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, senders := range []int{0, 16} {
			b.Run(fmt.Sprintf("%s/senders=%d", engine, senders), func(b *testing.B) { drain(b, engines[engine](b), senders) })
		}
	}
}

func drain(b *testing.B, o store.Options, senders int) {
	s, live := serve(b, o)
	aliases := make([]int64, drainAliases)
	for i := range aliases {
		name := fmt.Sprint("hooks", i)
		if _, err := s.CreateAccount(b.Context(), relay.System(), name, false); err != nil {
			b.Fatal(err)
		}
		a, err := s.CreateAlias(b.Context(), relay.System(), name, name)
		if err != nil {
			b.Fatal(err)
		}
		aliases[i] = a.ID
	}
	var drained, sent atomic.Int64
	var took time.Duration
	var cpu time.Duration
	var p99 latencies
	for range b.N {
		fillQueues(b, s, aliases)
		stop, senderWait := make(chan struct{}), sync.WaitGroup{}
		for range senders {
			senderWait.Go(func() { sent.Add(sendLive(b, s, live, stop, &p99)) })
		}
		began, used := time.Now(), processTime()
		var wg sync.WaitGroup
		for _, alias := range aliases {
			wg.Go(func() { drained.Add(drainAlias(b, s, alias)) })
		}
		wg.Wait()
		took, cpu = took+time.Since(began), cpu+processTime()-used
		close(stop)
		senderWait.Wait()
	}
	if n := drained.Load(); n != int64(b.N*drainAliases*drainQueued) {
		b.Fatalf("drained %d attempts", n)
	}
	b.ReportMetric(float64(drained.Load())/took.Seconds(), "drained/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(drained.Load()+sent.Load()), "cpu-us/event")
	if senders > 0 {
		b.ReportMetric(float64(sent.Load())/took.Seconds(), "live/s")
		b.ReportMetric(p99.at(0.99), "live-p99-ms")
	}
}

// fillQueues stores drainQueued events with a queued attempt for each alias.
func fillQueues(b *testing.B, s *store.Store, aliases []int64) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	var tickets []*relay.Ticket
	for range drainQueued {
		for _, alias := range aliases {
			e, _ := webhook(s.NewID(), alias, random)
			e.State = relay.StateQueued
			e.Attempts = []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: e.ReceivedAt}}
			tickets = append(tickets, s.Accept(e))
		}
		for _, ticket := range tickets {
			if <-ticket.Done(); ticket.Err() != nil {
				b.Fatal(ticket.Err())
			}
		}
		tickets = tickets[:0]
	}
}

// drainAlias claims and ends all queued attempts of an alias, as a dispatcher does whose local server answers
// at once. It returns their number.
func drainAlias(b *testing.B, s *store.Store, alias int64) (n int64) {
	random := rand.New(rand.NewPCG(uint64(alias), 1))
	next := relay.NextClaim{Alias: alias, Auto: true}
	c, err := s.Next(next)
	for c != nil && err == nil {
		_, end := webhook(c.Event.ID, alias, random)
		end.N = c.N
		ticket, claimed := s.FinishAndClaim(c.Event.ID, end, "", next)
		if <-ticket.Done(); ticket.Err() != nil {
			b.Error(ticket.Err())
			return n
		}
		n++
		if c = claimed(); c == nil {
			c, err = s.Next(next)
		}
	}
	if err != nil {
		b.Error(err)
	}
	return n
}

func sendLive(b *testing.B, s *store.Store, alias int64, stop <-chan struct{}, took *latencies) (n int64) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for {
		select {
		case <-stop:
			return n
		default:
		}
		e, a := webhook(s.NewID(), alias, random)
		began := time.Now()
		accept, finish := s.Accept(e), s.Finish(e.ID, a, "")
		<-accept.Done()
		<-finish.Done()
		took.add(time.Since(began))
		if accept.Err() != nil || finish.Err() != nil {
			b.Error(accept.Err(), finish.Err())
			return n
		}
		n++
	}
}

// processTime returns the processor time of this process, without that of Postgres.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
