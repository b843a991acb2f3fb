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

// auditQueue holds audit entries that nobody waits for; they are written each second. An
// equal entry within an interval is left out, because a client that reconnects each minute
// would fill the log.
type auditQueue struct {
	mu      sync.Mutex
	waiting []auditEntry
	seen    map[auditEntryKey]time.Time
	dropped int
}

type auditEntry struct {
	at      time.Time
	who     relay.Actor
	subject int64
	key     auditEntryKey
	detail  string
}

type auditEntryKey struct{ credential, action, target string }

const (
	loginInterval        = time.Hour
	takeoverInterval     = time.Minute
	maxQueuedEntries     = 1000   // waiting to be written
	maxRememberedEntries = 10_000 // keys for which the last time is remembered
	auditBatch           = 200    // rows in one transaction

	actionLogin    = "login.ssh"
	actionTakeover = "alias.takeover"
)

// NoteLogin records in the audit log that somebody logged in by SSH key, at most once an
// hour for each key. It does not block; the entry is written within seconds. remote is the
// source address.
func (s *Store) NoteLogin(who relay.Actor, remote string) {
	s.auditQueue.add(auditEntry{
		at: s.now(), who: who, subject: who.Account, key: auditEntryKey{who.Credential, actionLogin, who.Credential}, detail: "from " + truncateName(remote),
	}, loginInterval)
}

// NoteTakeover records in the audit log that a tunnel took an alias from another one, at
// most once a minute for each alias. It does not block; the entry is written within
// seconds.
func (s *Store) NoteTakeover(alias *relay.Alias, from, by relay.TunnelInfo) {
	s.auditQueue.add(auditEntry{
		at: s.now(), who: relay.Actor{Kind: relay.ActorSSH, Name: by.User}, subject: alias.Owner,
		key:    auditEntryKey{"", actionTakeover, alias.Name},
		detail: fmt.Sprintf("from %s at %s, by %s at %s", from.User, from.Remote, by.User, by.Remote),
	}, takeoverInterval)
}

func (l *auditQueue) add(n auditEntry, again time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.seen[n.key]; known && now.Sub(last) < again {
		return
	}
	if len(l.waiting) >= maxQueuedEntries {
		l.dropped++
		return
	}
	if l.seen == nil || len(l.seen) >= maxRememberedEntries {
		l.seen = map[auditEntryKey]time.Time{}
	}
	l.seen[n.key] = now
	l.waiting = append(l.waiting, n)
}

// next removes a batch from the queue.
func (l *auditQueue) next() (list []auditEntry, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), auditBatch)
	list, l.waiting = l.waiting[:n:n], l.waiting[n:]
	dropped, l.dropped = l.dropped, 0
	return list, dropped
}

// requeue puts entries that could not be written back to the front.
func (l *auditQueue) requeue(list []auditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(list)+len(l.waiting) <= maxQueuedEntries {
		l.waiting = append(list, l.waiting...)
	}
}

// flushAuditQueue writes the queue, best effort.
func (s *Store) flushAuditQueue(ctx context.Context) {
	for {
		list, dropped := s.auditQueue.next()
		if dropped > 0 {
			s.log.Warn("some logins and takeovers are not in the audit log: too many came at once", "entries", dropped)
		}
		if len(list) == 0 {
			return
		}
		err := s.update(ctx, "write audit log", func(c *writeTx) error {
			for _, n := range list {
				if n.who.Account == 0 { // a tunnel knows only the account name of its user
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
			s.auditQueue.requeue(list)
			return
		}
	}
}

// flushAuditQueueLast writes the queue before the store closes, unless the database is
// unreachable.
func (s *Store) flushAuditQueueLast() {
	if s.stop == nil || s.spool.active() || s.committer.down() != nil {
		return
	}
	s.flushAuditQueue(context.Background())
}
