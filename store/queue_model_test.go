package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/schematest"
)

// TestQueueHasWhatWaits runs random sequences of all operations that change the state of an attempt,
// including restarts. It compares the queue with the stored attempts after each step.
func TestQueueHasWhatWaits(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for range 2 {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s/%d", engine, seed), func(t *testing.T) {
				t.Parallel()
				o := Options{DataDir: t.TempDir()}
				if engine == "postgres" {
					o.URL = schematest.URL(t)
				}
				m := &queueModel{T: t, o: o, random: rand.New(rand.NewPCG(seed, 1))}
				m.run(120)
			})
		}
	}
}

// heldAttempt is an attempt that is in the state delivering, as far as the model knows.
type heldAttempt struct {
	id relay.ID
	n  int
}

type queueModel struct {
	*testing.T
	o       Options
	s       *Store
	random  *rand.Rand
	aliases []*relay.Alias
	events  []relay.ID
	held    []heldAttempt
	steps   []string
}

func (m *queueModel) serve() {
	m.Helper()
	m.s = openMigrated(m.T, m.o)
	m.must(m.s.Serve(m.Context(), func([]relay.Change) {}))
}

func (m *queueModel) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatalf("%v after %q", err, m.steps)
	}
}

func (m *queueModel) run(steps int) {
	m.serve()
	_, err := m.s.CreateAccount(m.Context(), relay.System(), "alice", false)
	m.must(err)
	for _, name := range []string{"a0", "a1"} {
		a, err := m.s.CreateAlias(m.Context(), relay.System(), name, "alice")
		m.must(err)
		m.aliases = append(m.aliases, a)
	}
	for range steps {
		m.step()
		m.check()
	}
	m.must(m.s.RemoveAlias(m.Context(), relay.System(), m.aliases[0].Name))
	m.must(m.s.DeleteRemovedAliases(m.Context()))
	m.check()
	if n := m.count(`alias_id = ?`, m.aliases[0].ID); n != 0 {
		m.Errorf("%d attempts of a removed alias are in the queue", n)
	}
}

func (m *queueModel) step() {
	alias := m.aliases[m.random.IntN(len(m.aliases))]
	id := relay.ID{}
	if len(m.events) > 0 {
		id = m.events[m.random.IntN(len(m.events))]
	}
	switch what := m.random.IntN(22); what {
	case 0, 1, 2, 3:
		m.note("queued")
		m.accept(alias, relay.StateQueued)
	case 4, 5:
		m.note("live")
		m.held = append(m.held, heldAttempt{m.accept(alias, relay.StateDelivering), 1})
	case 6, 7, 8, 9:
		m.note("next")
		c, err := m.s.Next(relay.NextClaim{Alias: alias.ID, Auto: m.random.IntN(2) == 0})
		if c != nil {
			m.held = append(m.held, heldAttempt{c.Event.ID, c.N})
		} else if err != nil && relay.AsError(err).Code != relay.CodeStoreUnavailable {
			m.must(err)
		}
	case 10, 11, 12, 13:
		m.end([]string{relay.StateDelivered, relay.StateFailed, relay.StateInterrupted}[m.random.IntN(3)])
	case 14:
		m.end("")
	case 15, 16:
		deliver := m.random.IntN(2) == 0
		m.note("replay %t", deliver)
		c, err := m.s.BeginReplay(m.Context(), relay.System(), id, deliver)
		if err == nil && deliver {
			m.held = append(m.held, heldAttempt{c.Event.ID, c.N})
		}
	case 17:
		m.note("release")
		_, err := m.s.Release(m.Context(), relay.System(), alias.Name)
		m.must(err)
	case 18:
		m.note("cancel: %v", m.s.Cancel(m.Context(), relay.System(), id))
	case 19:
		m.note("delete: %v", m.s.DeleteEvent(m.Context(), relay.System(), id))
	case 20:
		_, err := m.s.Retain(m.Context(), time.Now().Add(100*365*24*time.Hour))
		m.note("retain")
		m.must(err)
	case 21:
		m.note("restart")
		m.must(m.s.Close())
		m.held = nil
		m.serve()
	}
}

func (m *queueModel) note(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
}

func (m *queueModel) accept(alias *relay.Alias, state string) relay.ID {
	e := &relay.Event{
		ID: m.s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: state,
		Request:  relay.Message{Head: []byte("POST / HTTP/1.1\r\n\r\n"), Body: relay.Body{State: relay.BodyComplete}},
		Attempts: []relay.Attempt{{N: 1, State: state, ReceivedAt: time.Now()}},
	}
	m.must(wait(m.s.Accept(e)))
	m.events = append(m.events, e.ID)
	return e.ID
}

// end ends a delivering attempt with a state, or puts it back into the queue if state is "".
func (m *queueModel) end(state string) {
	if len(m.held) == 0 {
		return
	}
	i := m.random.IntN(len(m.held))
	h := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	m.note("end %d %q", h.n, state)
	if state == "" {
		m.must(wait(m.s.Requeue(h.id, h.n)))
		return
	}
	m.must(wait(m.s.Finish(h.id, &relay.Attempt{N: h.n, State: state, EndedAt: time.Now()}, "")))
}

type queuedAttempt struct {
	events.AttemptRow
	Claimed int `db:"claimed"`
}

// check compares the queue with the attempts that are queued, or are being delivered from the queue.
func (m *queueModel) check() {
	m.Helper()
	var queue, attempts []queuedAttempt
	m.must(m.s.db.View(m.Context(), "compare", func(q db.Query) error {
		const columns = `event_id, n, alias_id, received_at, kind, bytes, claim_node`
		err := q.All(&queue, `SELECT `+columns+`, CASE WHEN claim_node = '' THEN 0 ELSE 1 END AS claimed
			FROM queue ORDER BY event_id, n`)
		if err != nil {
			return err
		}
		return q.All(&attempts, `SELECT `+columns+`, state AS claimed
			FROM attempts WHERE state = 0 OR state = 1 AND from_queue = 1 ORDER BY event_id, n`)
	}))
	if d := cmp.Diff(attempts, queue, cmp.AllowUnexported(queuedAttempt{})); d != "" {
		m.Fatalf("the queue differs from the attempts after %q: %s", m.steps, d)
	}
}

func (m *queueModel) count(where string, args ...any) (n int) {
	m.Helper()
	m.must(m.s.db.View(m.Context(), "count", func(q db.Query) error {
		return q.Get(&n, `SELECT COUNT(*) FROM queue WHERE `+where, args...)
	}))
	return n
}

// A release of more events than one transaction changes is canceled between two transactions. The canceled call
// returns the number of the events that it has released, and the next call releases the others.
func TestReleaseIsCut(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			o := Options{DataDir: t.TempDir()}
			if engine == "postgres" {
				o.URL = schematest.URL(t)
			}
			m := &queueModel{T: t, o: o, s: openMigrated(t, o)}
			ctx, cut := context.WithCancel(t.Context())
			m.must(m.s.Serve(t.Context(), func(changes []relay.Change) {
				if slices.ContainsFunc(changes, func(c relay.Change) bool { return c.Kind == relay.ChangeAttempt }) {
					cut()
				}
			}))
			_, err := m.s.CreateAccount(t.Context(), relay.System(), "alice", false)
			m.must(err)
			alias, err := m.s.CreateAlias(t.Context(), relay.System(), "hooks", "alice")
			m.must(err)
			const (
				releaseSlice = 1000 // number of events that one transaction changes
				all          = releaseSlice + 100
			)
			var tickets []*relay.Ticket
			for range all {
				tickets = append(tickets, m.s.Accept(&relay.Event{
					ID: m.s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: relay.StateQueued,
					Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
					Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued, ReceivedAt: time.Now()}},
				}))
			}
			for _, ticket := range tickets {
				m.must(wait(ticket))
			}
			if n, err := m.s.Release(ctx, relay.System(), "hooks"); n != releaseSlice || !errors.Is(err, context.Canceled) {
				t.Fatalf("released %d, %v", n, err)
			}
			stats, err := m.s.QueueStats(t.Context(), []int64{alias.ID})
			m.must(err)
			if q := stats[alias.ID]; q.Queued != all || q.QueuedEvents != all-releaseSlice {
				t.Errorf("%+v", q)
			}
			for _, want := range []int{all - releaseSlice, 0} {
				if n, err := m.s.Release(t.Context(), relay.System(), "hooks"); n != want || err != nil {
					t.Errorf("released %d, %v, want %d", n, err, want)
				}
			}
		})
	}
}
