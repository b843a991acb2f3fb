package people

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/store/db"
)

// lateKind is a kind of late writes; most is the number of them that may wait.
type lateKind struct {
	name string
	most int
}

var (
	lateNotes   = lateKind{"note", 10_000}    // uses of credentials, and entries of the audit log
	lateRefused = lateKind{"refused", 10_000} // forwards that were refused, or allowed after a refusal
	lateEnds    = lateKind{"end", 1000}       // responses of calls with an Idempotency-Key that could not be written at once
)

// lateKey identifies a late write: of two waiting writes with the same key, only the later one is written.
type lateKey struct {
	kind *lateKind
	text string
}

// lateWrite is a small write without a waiting caller.
type lateWrite interface {
	write(*db.Tx) error
}

type lateFunc func(*db.Tx) error

func (f lateFunc) write(c *db.Tx) error { return f(c) }

const (
	lateBatch = 200    // largest number of writes in one transaction
	lateKeys  = 10_000 // number of keys for which putOnce remembers the time of the last write
)

// lateWrites holds late writes until they are written, which happens each second. The number of waiting
// writes is bounded; further ones are dropped. All methods are safe for concurrent use.
type lateWrites struct {
	writing sync.Mutex // held while late writes are written

	mu      sync.Mutex
	waiting map[lateKey]lateWrite
	count   map[*lateKind]int
	last    map[lateKey]time.Time // time at which putOnce last added a write of each key
	lost    int
}

// put adds a write. merge gets the waiting write with the same key, or nil, and returns the write to keep.
func (l *lateWrites) put(key lateKey, merge func(before lateWrite) lateWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(key, merge)
}

func (l *lateWrites) putLocked(key lateKey, merge func(before lateWrite) lateWrite) {
	before, known := l.waiting[key]
	if !known && l.count[key.kind] >= key.kind.most {
		l.lost++
		return
	}
	if l.waiting == nil {
		l.waiting, l.count = map[lateKey]lateWrite{}, map[*lateKind]int{}
	}
	if !known {
		l.count[key.kind]++
	}
	l.waiting[key] = merge(before)
}

// putOnce adds a write, unless a write with the same key was added within interval. Otherwise a client
// that reconnects each minute would fill the audit log.
func (l *lateWrites) putOnce(key string, interval time.Duration, write lateFunc) {
	now, of := time.Now(), lateKey{&lateNotes, key}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.last[of]; known && now.Sub(last) < interval {
		return
	}
	if l.last == nil || len(l.last) >= lateKeys {
		l.last = map[lateKey]time.Time{}
	}
	l.last[of] = now
	of.text += now.Format(" " + time.RFC3339Nano) // the time makes the key unique, so that each write is kept
	l.putLocked(of, func(lateWrite) lateWrite { return write })
}

// keys lists the keys of the waiting writes in the order in which all nodes write them, so that they lock
// rows in one order.
func (l *lateWrites) keys() []lateKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.waiting), func(a, b lateKey) int {
		return cmp.Or(strings.Compare(a.kind.name, b.kind.name), strings.Compare(a.text, b.text))
	})
}

// take removes the waiting writes with the given keys, and returns them in the order of the keys.
func (l *lateWrites) take(keys []lateKey) (taken []lateKey, writes []lateWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if w, waits := l.waiting[key]; waits {
			taken, writes = append(taken, key), append(writes, w)
			delete(l.waiting, key)
			l.count[key.kind]--
		}
	}
	return taken, writes
}

// temporary reports whether an operation that failed with err may succeed later.
func temporary(err error) bool {
	if err == nil {
		return false
	}
	code := relay.AsError(err).Code
	return code == relay.CodeStoreUnavailable || code == relay.CodeStorageFull || code == relay.CodeOverloaded
}

// WriteLate writes the late writes: small ones, such as the last use of a credential, and those whose first
// try failed while a caller waited. If the database is down, they wait for the next call.
func (s *Store) WriteLate(ctx context.Context) {
	l := &s.late
	l.mu.Lock()
	lost := l.lost
	l.lost = 0
	l.mu.Unlock()
	if lost > 0 {
		s.log.Warn("some logins, takeovers or uses of credentials are not stored: too many came at once", "lost", lost)
	}
	for keys := range slices.Chunk(l.keys(), lateBatch) {
		err := s.writeLate(ctx, keys)
		if err != nil && !temporary(err) { // the database refuses one of the writes for good
			for i := range keys {
				err = s.writeLate(ctx, keys[i:i+1])
				if temporary(err) {
					return
				}
			}
		} else if err != nil {
			return
		}
	}
}

// writeLate writes the waiting writes with the given keys, in one transaction. If the transaction fails, the
// writes wait again. A single write that the database refuses for good is dropped.
func (s *Store) writeLate(ctx context.Context, keys []lateKey) error {
	l := &s.late
	l.writing.Lock()
	defer l.writing.Unlock()
	keys, writes := l.take(keys)
	if len(keys) == 0 {
		return nil
	}
	err := s.db.Update(context.WithoutCancel(ctx), "write what waits", func(c *db.Tx) error {
		for _, w := range writes {
			if err := w.write(c); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	if len(keys) == 1 && !temporary(err) {
		s.log.Warn("a delayed write cannot be stored", "kind", keys[0].kind.name, "err", err)
		return err
	}
	for i, key := range keys {
		l.put(key, func(newer lateWrite) lateWrite {
			if newer == nil {
				return writes[i]
			}
			if change, ok := newer.(*refusedChange); ok {
				change.follow(writes[i].(*refusedChange))
			}
			return newer
		})
	}
	return err
}
