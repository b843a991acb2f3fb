package store_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

// BenchmarkCommit measures durable captures: Accept and Finish of one event, from enqueueing until both
// tickets resolve. Concurrent senders share commits, except in rowbyrow, where each event waits until the one
// before is durable.
func BenchmarkCommit(b *testing.B) {
	engines := map[string]func(testing.TB) store.Options{
		"sqlite": func(t testing.TB) store.Options { return store.Options{DataDir: t.TempDir()} },
		"postgres": func(t testing.TB) store.Options {
			return store.Options{URL: pgtest.DurableURL(t), DataDir: t.TempDir()}
		},
	}
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, senders := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/senders=%d", engine, senders), func(b *testing.B) { commit(b, engines[engine](b), senders, false) })
		}
		b.Run(engine+"/rowbyrow/senders=256", func(b *testing.B) { commit(b, engines[engine](b), 256, true) })
	}
}

func commit(b *testing.B, o store.Options, senders int, single bool) {
	s, alias := serve(b, o)
	var took latencies
	var gate sync.Mutex // used if single is set: an event begins only when the one before is durable
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for range senders {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for left.Add(-1) >= 0 {
				e, a := webhook(s.NewID(), alias, random)
				began := time.Now()
				if single {
					gate.Lock()
				}
				accept, finish := s.Accept(e), s.Finish(e.ID, a, "")
				<-accept.Done()
				<-finish.Done()
				if single {
					gate.Unlock()
				}
				took.add(time.Since(began))
				if accept.Err() != nil || finish.Err() != nil {
					b.Error(accept.Err(), finish.Err())
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "events/s")
	b.ReportMetric(took.at(0.50), "p50-ms")
	b.ReportMetric(took.at(0.99), "p99-ms")
	b.ReportMetric(float64(st.Committed)/2/float64(st.Batches), "events/commit")
}

func serve(b *testing.B, o store.Options) (*store.Store, int64) {
	b.Helper()
	ctx := b.Context()
	s, err := store.Open(ctx, o)
	if err == nil {
		b.Cleanup(func() { _ = s.Close() })
		_, _, err = s.Migrate(ctx)
	}
	if err == nil {
		err = s.Serve(ctx, func([]relay.Change) {})
	}
	if err == nil {
		_, err = s.CreateAccount(ctx, relay.System(), "alice", false)
	}
	if err != nil {
		b.Fatal(err)
	}
	a, err := s.CreateAlias(ctx, relay.System(), "hooks", "alice")
	if err != nil {
		b.Fatal(err)
	}
	return s, a.ID
}

// webhook returns an event with a body of 2 KiB, and the end of its attempt with a response body of 512 bytes.
func webhook(id relay.ID, alias int64, random *rand.Rand) (*relay.Event, *relay.Attempt) {
	now := time.Now()
	request, response := noise(random, 2048), noise(random, 512)
	e := &relay.Event{
		ID: id, AliasID: alias, Alias: "hooks", ReceivedAt: now, LastReceivedAt: now, Remote: netip.MustParseAddrPort("203.0.113.9:52011"),
		Method: "POST", Target: []byte("/webhooks/stripe"), HTTPMinor: 1, Host: "hooks.localhost", State: relay.StateDelivering,
		Request:  body(noise(random, 600), request),
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: now, StartedAt: now}},
	}
	a := &relay.Attempt{
		N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, ReceivedAt: now, StartedAt: now, EndedAt: now, Connection: relay.ConnectionNew,
		HasTiming: true, Timing: relay.Timing{Wait: time.Millisecond}, HasResponse: true, Status: 200, ResponseState: relay.ResponseComplete,
		Response: body(noise(random, 195), response),
	}
	return e, a
}

// noise returns n bytes that look like JSON with random ids. It is cheap, so that
// the benchmark measures the store and not the sender.
func noise(random *rand.Rand, n int) []byte {
	p := pool()
	at := random.IntN(len(p) - n)
	return p[at : at+n : at+n]
}

var pool = sync.OnceValue(func() []byte {
	const letters = `abcdefghijklmnopqrstuvwxyz"{}:,0123456789`
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return b
})

func body(head, data []byte) relay.Message {
	return relay.Message{
		Head: head, Framing: relay.FramingLength,
		Body: relay.Body{Data: data, Size: int64(len(data)), SHA256: sha256.Sum256(data), State: relay.BodyComplete},
	}
}

type latencies struct {
	mu   sync.Mutex
	list []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.list = append(l.list, d)
	l.mu.Unlock()
}

// at returns the quantile q of the latencies in milliseconds.
func (l *latencies) at(q float64) float64 {
	if len(l.list) == 0 {
		return 0
	}
	slices.Sort(l.list)
	return float64(l.list[int(q*float64(len(l.list)-1))]) / float64(time.Millisecond)
}
