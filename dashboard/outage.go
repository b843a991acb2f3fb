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
	maxCachedSessions = 512
	maxCachedAliases  = 200              // of one session
	maxCacheAge       = 10 * time.Minute // after which it is not shown any more
)

// aliasCache is what sessions saw last on their home page, so that an outage of the
// database leaves people something to go by. It is safe for concurrent use.
type aliasCache struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]cachedAliases
}

// cachedAliases is a list of aliases as it was.
type cachedAliases struct {
	at      time.Time
	aliases []aliasView
}

// keep remembers what the session of a request sees.
func (k *aliasCache) keep(session string, aliases []aliasView, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil {
		k.seen = map[[sha256.Size]byte]cachedAliases{}
	}
	if len(k.seen) >= maxCachedSessions { // any entry may go: its next home page adds it again
		for key := range k.seen {
			delete(k.seen, key)
			break
		}
	}
	k.seen[sha256.Sum256([]byte(session))] = cachedAliases{now, aliases[:min(len(aliases), maxCachedAliases)]}
}

// forget is for sessions that ended.
func (k *aliasCache) forget(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.seen, sha256.Sum256([]byte(session)))
}

func (k *aliasCache) of(session string, now time.Time) cachedAliases {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := k.seen[sha256.Sum256([]byte(session))]
	if now.Sub(seen.at) > maxCacheAge {
		return cachedAliases{}
	}
	return seen
}

// outageView is the page while the database does not answer.
type outageView struct {
	Detail, RetryPath string // Again: address to try once more
	Seen              stamp  // when Aliases were known
	Aliases           []aliasView
}

// outageOf says what is known of a request while the store is away.
func (p *pages) outageOf(r *http.Request, e *relay.Error) outageView {
	v := outageView{Detail: e.Detail, RetryPath: "/"}
	if r.Method == http.MethodGet {
		v.RetryPath = localPath(r.URL.EscapedPath())
		if r.URL.RawQuery != "" && v.RetryPath != "/" {
			v.RetryPath += "?" + r.URL.RawQuery
		}
	}
	if secrets := p.sessionSecrets(r); len(secrets) == 1 { // of two nobody could tell now whose is right
		now := time.Now()
		seen := p.aliasCache.of(secrets[0], now)
		v.Seen, v.Aliases = stampOf(seen.at, now), seen.aliases
	}
	return v
}
