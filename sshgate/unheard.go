package sshgate

import (
	"net/netip"
	"sync"
)

// maxUnheard is how many sources are remembered by unheard.
const maxUnheard = 4096

// unheard remembers of each source the key at which its last failed login ended
// without a word. Clients try their other methods only after their keys, and with
// BatchMode none, so that nobody knows which refused key is the last one; a client that
// comes again ends where it ended before. Safe for concurrent use.
type unheard struct {
	mu   sync.Mutex
	last map[netip.Prefix]string // fingerprint
}

// note keeps the key at which a login ended.
func (u *unheard) note(from netip.Prefix, fingerprint string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.last[from]; !known && len(u.last) >= maxUnheard {
		for other := range u.last { // any: who is forgotten is told one try later
			delete(u.last, other)
			break
		}
	}
	if u.last == nil {
		u.last = map[netip.Prefix]string{}
	}
	u.last[from] = fingerprint
}

// ends tells whether a login of the source ended at this key before.
func (u *unheard) ends(from netip.Prefix, fingerprint string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last[from] == fingerprint
}

// forget is told that somebody has come in, or has heard why not.
func (u *unheard) forget(from netip.Prefix) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.last, from)
}
