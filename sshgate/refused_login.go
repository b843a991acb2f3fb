package sshgate

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"

	"relay/record"
	"relay/sockets"
)

// Bounds of what the log and the audit log tell about logins that fail: strangers cause them, as
// many as they like.
const (
	refusedLines   = 10 // at once, then one more in each logInterval
	refusedEntries = 20 // at once, then one more a minute
	notedKeys      = 3  // of one connection
)

// failures bounds what is told about logins that fail.
type failures struct {
	lines, entries *rate.Limiter
	suppressed     atomic.Int64 // lines, since the last one
}

func newFailures() *failures {
	return &failures{
		lines:   rate.NewLimiter(rate.Every(logInterval), refusedLines),
		entries: rate.NewLimiter(rate.Limit(1)/60, refusedEntries),
	}
}

// log writes a line for the operator, or counts it.
func (f *failures) log(srv *Server, text string, args ...any) {
	if !f.lines.Allow() {
		f.suppressed.Add(1)
		return
	}
	if n := f.suppressed.Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	srv.o.Log.Info(text, args...)
}

// refusal is what a client that did not log in has tried.
type refusal struct {
	user string
	keys []string // fingerprints
	err  string   // why its last try was refused
}

// noteKey keeps the fingerprint of a key that was refused, for the operator.
func (c *conn) noteKey(fingerprint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keys := c.tried.keys; len(keys) < notedKeys && !slices.Contains(keys, fingerprint) {
		c.tried.keys = append(keys, fingerprint)
	}
}

// noteTry keeps the user name and the reason of a refused try.
func (c *conn) noteTry(user string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried.user, c.tried.err = record.SafeTextMax(user, 64), record.SafeTextMax(err.Error(), 300)
}

// tellRefused tells the operator, once a connection has ended, that nobody came in by it, from
// where and with which keys.
func (srv *Server) tellRefused(c *conn, tried refusal) {
	keys := strings.Join(tried.keys, " ")
	args := []any{"remote", c.remote.String(), "user", tried.user, "client", clientName([]byte(c.version))}
	if keys == "" {
		args = append(args, "err", tried.err) // such as a signature algorithm that is not accepted
	} else {
		args = append(args, "keys", keys)
	}
	srv.failures.log(srv, "ssh login refused", args...)
	if keys != "" && srv.failures.entries.Allow() {
		srv.o.Accounts.NoteRefusedLogin(keys, "from "+c.remote.String()+" as "+tried.user)
	}
}

// connectionFailed tells the operator of clients that have no algorithm in common with this server:
// nobody else can see why they never get as far as a login.
func (srv *Server) connectionFailed(tcp net.Conn, err error) {
	text := record.SafeTextMax(err.Error(), 600)
	if none, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok {
		srv.failures.log(srv, "ssh client without a common algorithm; docs/ssh.md lists those of relayd",
			"remote", sockets.AddrOf(tcp.RemoteAddr()).String(), "err", record.SafeTextMax(none.Error(), 600))
		return
	}
	srv.o.Log.Debug("ssh connection ended before login", "err", text)
}
