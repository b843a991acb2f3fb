//go:build unix

package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"relay"
	"relay/delivery/changes"
	"relay/delivery/feed"
)

// rows is a store that makes each event and attempt when it is read.
type rows struct{ attempts, summaries int }

func (*rows) event(id relay.ID) relay.Event {
	return relay.Event{
		ID: id, AliasID: 7, Alias: "hook", ReceivedAt: time.Now(), LastReceivedAt: time.Now(), Remote: netip.MustParseAddrPort("203.0.113.9:5201"),
		Method: "POST", Target: []byte("/hook?x=1"), HTTPMinor: 1, Host: "hook.example.com", State: relay.StateDelivered, Status: 200, AttemptCount: 1,
		Provider: relay.Provider{Name: "stripe", EventType: "invoice.paid", DeliveryID: "evt_1"},
	}
}

func (*rows) attempt(n int) *relay.Attempt {
	return &relay.Attempt{
		N: n, Kind: relay.KindOriginal, State: relay.StateDelivered, ReceivedAt: time.Now(), StartedAt: time.Now(), EndedAt: time.Now(),
		HasTiming: true, HasResponse: true, Status: 200, ResponseState: "complete",
		Response: relay.Message{Head: []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 28 Nov 2026 15:00:00 GMT\r\nContent-Length: 2\r\n\r\n")},
	}
}

func (s *rows) Summaries(_ context.Context, ids []relay.ID) ([]relay.Event, error) {
	s.summaries++
	var out []relay.Event
	for _, id := range ids {
		out = append(out, s.event(id))
	}
	return out, nil
}

func (s *rows) AttemptHeads(_ context.Context, _ int64, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	s.attempts++
	out := map[relay.AttemptRef]*relay.Attempt{}
	for _, ref := range refs {
		out[ref] = s.attempt(ref.N)
	}
	return out, nil
}

func (*rows) Aliases(context.Context, relay.Actor) ([]relay.Alias, error) {
	return []relay.Alias{{ID: 7, Name: "hook"}}, nil
}
func (*rows) AccountsOf(context.Context, []int64) (map[int64][]int64, error) { return nil, nil }
func (*rows) StillValid(context.Context, relay.Actor) error                  { return nil }

// BenchmarkFeed measures the processor time of the feed for each request, at a thousand requests a second,
// with 1 and with 20 viewers.
func BenchmarkFeed(b *testing.B) {
	for _, viewers := range []int{1, 20} {
		b.Run(fmt.Sprint(viewers), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			s := &rows{}
			f := feed.New(feed.Options{
				Encoder: changes.Encoder{Store: s, Alias: func(int64) *relay.Alias { return &relay.Alias{ID: 7, Name: "hook"} }},
				Rights:  s, Log: slog.New(slog.DiscardHandler),
			})
			ended := make(chan struct{})
			go func() { f.Run(ctx); close(ended) }()
			for range viewers {
				sub, err := f.Subscribe(ctx, relay.Actor{Account: 1, Kind: relay.ActorUser}, 7, "")
				if err != nil {
					b.Fatal(err)
				}
				go func() {
					for {
						if _, err := sub.Next(ctx); err != nil {
							return
						}
					}
				}()
			}
			beats := time.NewTicker(time.Millisecond)
			defer beats.Stop()
			before := processorTime()
			for n := 0; b.Loop(); n++ {
				<-beats.C
				id := relay.ID{byte(n >> 16), byte(n >> 8), byte(n)}
				snapshot := func() (*relay.Event, *relay.Attempt) {
					e := s.event(id)
					return &e, s.attempt(1)
				}
				f.Put(relay.Change{Kind: relay.ChangeEvent, Alias: 7, Event: id, Snapshot: snapshot},
					relay.Change{Kind: relay.ChangeAttempt, Alias: 7, Event: id, N: 1, Snapshot: snapshot})
			}
			b.ReportMetric(float64(processorTime()-before)/float64(b.N)/1000, "cpu-µs/request")
			cancel()
			<-ended
		})
	}
}

func processorTime() int64 {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return used.Utime.Nano() + used.Stime.Nano()
}
