package login

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"

	"relay/link"
	"relay/record"
)

// LogInterval is the shortest time between two log lines about one problem of connections without a login.
const LogInterval = 10 * time.Second

// Bounds of the lines about failed logins in the log and the audit log, because any client can cause any
// number of failed logins.
const (
	refusedLines   = 10 // log lines at once; after that, one more each LogInterval
	refusedEntries = 20 // entries of the audit log at once; after that, one more each minute
	notedKeys      = 3  // keys that are noted for each connection
)

// failures limits the lines about failed logins in the log (lines) and in the audit log (entries).
type failures struct {
	lines, entries *rate.Limiter
	suppressed     atomic.Int64 // number of lines that were left out since the last written one
}

func newFailures() *failures {
	return &failures{
		lines:   rate.NewLimiter(rate.Every(LogInterval), refusedLines),
		entries: rate.NewLimiter(rate.Limit(1)/60, refusedEntries),
	}
}

// log writes a line for the operator, or counts it if there are too many.
func (f *failures) log(log *slog.Logger, text string, args ...any) {
	if !f.lines.Allow() {
		f.suppressed.Add(1)
		return
	}
	if n := f.suppressed.Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	log.Info(text, args...)
}

// refusal holds the attempts of a client that did not log in.
type refusal struct {
	user string
	keys []string // fingerprints of the refused keys
	err  string   // why its last try was refused
}

// noteKey stores the fingerprint of a refused key, for the log.
func (g *Login) noteKey(fingerprint string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if keys := g.tried.keys; len(keys) < notedKeys && !slices.Contains(keys, fingerprint) {
		g.tried.keys = append(keys, fingerprint)
	}
}

// noteTry stores the user name and the reason of a refused try.
func (g *Login) noteTry(user string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried.user, g.tried.err = record.SafeTextMax(user, 64), record.SafeTextMax(err.Error(), 300)
}

// tell logs a connection that ended without a login, and writes its refused keys to the audit log.
func (g *Login) tell(tried refusal) {
	keys := strings.Join(tried.keys, " ")
	args := []any{"from", g.remote.String(), "user", tried.user, "client", ClientName([]byte(g.version))}
	if keys == "" {
		args = append(args, "err", tried.err) // err may name a refused signature algorithm
	} else {
		args = append(args, "keys", keys)
	}
	g.all.failures.log(g.o.Log, "ssh login refused", args...)
	if keys != "" && g.all.failures.entries.Allow() {
		g.o.Accounts.NoteRefusedLogin(keys, "from "+g.remote.String()+" as "+tried.user)
	}
}

// HandshakeFailed logs clients that have no algorithm in common with this server, because such clients do not
// show the reason to their user.
func (l *Logins) HandshakeFailed(remote netip.AddrPort, cause link.Cause, err error) {
	text := record.SafeTextMax(err.Error(), 600)
	if none, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok {
		l.failures.log(l.o.Log, "ssh client without a common algorithm; docs/ssh-clients.md lists those of relayd",
			"from", remote.String(), "err", record.SafeTextMax(none.Error(), 600))
		return
	}
	l.o.Log.Debug("ssh connection ended before login", "from", remote.String(), "cause", cause, "err", text)
}
