package dashboard

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"relay"
)

// Bounds of what is remembered for an outage.
const (
	knownSessions = 512
	knownAliases  = 200              // of one session
	knownAge      = 10 * time.Minute // after which it is not shown any more
)

// known is what sessions saw last on their home page, so that an outage of the
// database leaves people something to go by. It is safe for concurrent use.
type known struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]homeSeen
}

// homeSeen is a list of aliases as it was.
type homeSeen struct {
	at      time.Time
	aliases []aliasView
}

// keep remembers what the session of a request sees.
func (k *known) keep(session string, aliases []aliasView, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil {
		k.seen = map[[sha256.Size]byte]homeSeen{}
	}
	if len(k.seen) >= knownSessions { // any one goes: it comes back with its next look
		for key := range k.seen {
			delete(k.seen, key)
			break
		}
	}
	k.seen[sha256.Sum256([]byte(session))] = homeSeen{now, aliases[:min(len(aliases), knownAliases)]}
}

// forget is for sessions that ended.
func (k *known) forget(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.seen, sha256.Sum256([]byte(session)))
}

func (k *known) of(session string, now time.Time) homeSeen {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := k.seen[sha256.Sum256([]byte(session))]
	if now.Sub(seen.at) > knownAge {
		return homeSeen{}
	}
	return seen
}

// outageView is the page while the database does not answer.
type outageView struct {
	Detail, Again string // Again: address to try once more
	Seen          stamp  // when Aliases were known
	Aliases       []aliasView
}

// outageOf says what is known of a request while the store is away.
func (p *pages) outageOf(r *http.Request, e *relay.Error) outageView {
	v := outageView{Detail: e.Detail, Again: "/"}
	if r.Method == http.MethodGet {
		v.Again = localPath(r.URL.EscapedPath())
		if r.URL.RawQuery != "" && v.Again != "/" {
			v.Again += "?" + r.URL.RawQuery
		}
	}
	if secrets := p.sessions(r); len(secrets) == 1 { // of two nobody could tell now whose is right
		now := time.Now()
		seen := p.known.of(secrets[0], now)
		v.Seen, v.Aliases = stampOf(seen.at, now), seen.aliases
	}
	return v
}
