package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"relay"
)

// notes are audit rows of things that nobody waits for, written each second. The same
// thing again within a time is left out: an ssh that dials each minute would fill the
// log.
type notes struct {
	mu      sync.Mutex
	waiting []note
	seen    map[noteKey]time.Time
	dropped int
}

type note struct {
	at      time.Time
	who     relay.Actor
	subject int64
	key     noteKey
	detail  string
}

type noteKey struct{ credential, action, target string }

const (
	loginAgain = time.Hour
	overAgain  = time.Minute
	mostNotes  = 1000   // that wait to be written
	mostNoted  = 10_000 // that are remembered
	noteLimit  = 200    // rows in one transaction

	loginNote = "login.ssh"
	takeOver  = "alias.takeover"
)

// NoteLogin keeps in the audit log, soon, that somebody came in by a proven SSH key:
// once an hour for each key. It never blocks. remote is the source address.
func (s *Store) NoteLogin(who relay.Actor, remote string) {
	s.notes.add(note{
		at: s.now(), who: who, subject: who.Account, key: noteKey{who.Credential, loginNote, who.Credential}, detail: "from " + short(remote),
	}, loginAgain)
}

// NoteTakeover keeps in the audit log, soon, that a tunnel took an alias from another
// one: once a minute for each alias. It never blocks.
func (s *Store) NoteTakeover(alias *relay.Alias, from, by relay.TunnelInfo) {
	s.notes.add(note{
		at: s.now(), who: relay.Actor{Kind: relay.ActorSSH, Name: by.User}, subject: alias.Owner,
		key:    noteKey{"", takeOver, alias.Name},
		detail: fmt.Sprintf("from %s at %s, by %s at %s", from.User, from.Remote, by.User, by.Remote),
	}, overAgain)
}

func (l *notes) add(n note, again time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.seen[n.key]; known && now.Sub(last) < again {
		return
	}
	if len(l.waiting) >= mostNotes {
		l.dropped++
		return
	}
	if l.seen == nil || len(l.seen) >= mostNoted {
		l.seen = map[noteKey]time.Time{}
	}
	l.seen[n.key] = now
	l.waiting = append(l.waiting, n)
}

// next takes some of what waits.
func (l *notes) next() (list []note, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), noteLimit)
	list, l.waiting = l.waiting[:n:n], l.waiting[n:]
	dropped, l.dropped = l.dropped, 0
	return list, dropped
}

// back puts what could not be written in front again.
func (l *notes) back(list []note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(list)+len(l.waiting) <= mostNotes {
		l.waiting = append(list, l.waiting...)
	}
}

// flushNotes writes what was noted; best effort.
func (s *Store) flushNotes(ctx context.Context) {
	for {
		list, dropped := s.notes.next()
		if dropped > 0 {
			s.log.Warn("some logins and takeovers are not in the audit log: too many came at once", "entries", dropped)
		}
		if len(list) == 0 {
			return
		}
		err := s.update(ctx, "write audit log", func(c *change) error {
			for _, n := range list {
				if n.who.Account == 0 { // a tunnel gives only the name of who attached it
					if a, err := c.account(n.who.Name); err == nil {
						n.who.Account = a.ID
					} else if !errors.Is(err, sql.ErrNoRows) {
						return err
					}
				}
				if err := c.auditAt(n.at, n.who, n.subject, n.key.action, n.key.target, n.detail); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.notes.back(list)
			return
		}
	}
}

// noteLast writes what still waits before the store closes, unless the database is
// away.
func (s *Store) noteLast() {
	if s.stop == nil || s.spool.active() || s.fenced.Load() {
		return
	}
	for _, c := range s.committers {
		if c.down() != nil {
			return
		}
	}
	s.flushNotes(context.Background())
}
