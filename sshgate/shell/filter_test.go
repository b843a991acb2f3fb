package shell

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"relay"
	"relay/cli"
)

// asking is a Session whose API records the requests of commands, and answers each with an empty list.
type asking struct {
	t *testing.T

	mu    sync.Mutex
	asked []string
}

func (s *asking) OpenAPI() (net.Conn, error) {
	ours, theirs := net.Pipe()
	srv := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.URL.RequestURI())
		s.mu.Unlock()
		_, _ = io.WriteString(w, `{"data":[],"nextCursor":null}`)
	})}
	l := make(listener, 1)
	l <- ours
	go func() { _ = srv.Serve(l) }()
	s.t.Cleanup(func() { _ = srv.Close() })
	return theirs, nil
}

func (s *asking) Go(_ string, f func())  { go f() }
func (s *asking) Stop(int)               {}
func (s *asking) Exit(otherwise int) int { return otherwise }
func (s *asking) RequestsPending() bool  { return false }
func (s *asking) Attached() []string     { return nil }
func (s *asking) Holds(int64) bool       { return false }

func (s *asking) SubscribeNotices(context.Context) (online, refused []Notice, further *Queue[Notice]) {
	return nil, nil, NewQueue[Notice]()
}

// listener is a Go channel and a net.Listener: Accept returns the connections that are sent to the channel.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l listener) Close() error   { close(l); return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// run runs a command line and returns its API requests, its output and its exit code.
func run(t *testing.T, line string) (asked, out, said string, code int) {
	t.Helper()
	session := &asking{t: t}
	var stdout, stderr strings.Builder
	s := &Shell{
		Config:  &Config{Site: relay.Site{Base: url.URL{Scheme: "http", Host: "relay.example.test"}, SSHAddr: "relay.example.test:2222"}, Version: "test"},
		Session: session, Conn: session, Ctx: t.Context(), Who: relay.Actor{AccountName: "alice"}, Stdout: &stdout, Stderr: &stderr, Screen: &Screen{},
	}
	code = s.Run(line)
	session.mu.Lock()
	defer session.mu.Unlock()
	return strings.Join(session.asked, " "), stdout.String(), stderr.String(), code
}

// TestFiltersOfCommands: the commands about events accept filters as flags and as words, and quoted text
// keeps its letter case. A wrong filter is a usage error with a hint.
func TestFiltersOfCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`events a`:              "",
		`events a status:5xx`:   "status=5xx",
		`events a --status 5xx`: "status=5xx",
		`events a -n 20 --type=invoice.* data.id=x "Exact text" 'other text' word`: `json=data.id=x&q="Exact text"&q="other text"&q=word&type=invoice.*`,
		`events --json a data.id=x`:            "json=data.id=x",
		`events a "Exact"`:                     `q="Exact"`,
		`events a --path "/a b" --method post`: "method=POST&path=/a b",
		`events a path:"/a b"`:                 "path=/a b",
	} {
		asked, _, said, code := run(t, line)
		u, err := url.Parse(asked)
		if err != nil || code != 0 {
			t.Errorf("%s: %d, %s, %v", line, code, said, err)
			continue
		}
		query := u.Query()
		if query.Get("alias") != "a" || query.Get("limit") != "20" {
			t.Errorf("%s: %s", line, asked)
		}
		query.Del("alias")
		query.Del("limit")
		if got, _ := url.QueryUnescape(query.Encode()); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		`events a --stauts 5xx`:            "did you mean --status",
		`events a stauts:5xx`:              "did you mean status?",
		`events a --status 5x`:             "did you mean 5xx?",
		`events a --status 404 status:500`: "more than once",
		`events a alias:b`:                 "the alias is the first argument",
		`events a --alias b`:               "unknown flag",
	} {
		if asked, _, said, code := run(t, line); code != cli.ExitUsage || asked != "" || !strings.Contains(said, want) {
			t.Errorf("%s: %d, %s, want %s", line, code, said, want)
		}
	}
}

// TestWrongUse: malformed command lines, unknown commands and unknown names are usage errors.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help replya":                     "did you mean ssh -p 2222 relay.example.test replay",
		"evnts stripe-dev":                "did you mean ssh -p 2222 relay.example.test events",
		"xyzzy":                           `unknown command "xyzzy"`,
		"whoami extra":                    "takes no arguments",
		"events stripe-dev -n 0":          "-n is 1 to 200",
		"events stripe-dev -z":            "unknown shorthand flag",
		"share x --expires soon":          "--expires is a duration",
		"export x --format pdf":           "--format is curl, har",
		"mark x":                          "needs --pinned, --label or --note",
		"wait stripe-dev --timeout 2h":    "at most 1h",
		"'unclosed":                       "quote",
		"\x1b]0;evil\a":                   `\x1b]0;evil`,
		"format-disk \x1b[2J":             "unknown command",
		"__complete events a":             "unknown command",
		strings.Repeat("x", maxCommand+1): "too long",
	} {
		asked, out, said, code := run(t, line)
		if code != cli.ExitUsage || asked != "" || out != "" || !strings.Contains(said, want) || !strings.HasPrefix(said, "relay: ") || strings.ContainsAny(said, "\x1b\a") {
			t.Errorf("%.60q: exit %d, asked %q, stdout %q, stderr %q; want %q", line, code, asked, out, said, want)
		}
	}
	if _, out, said, code := run(t, "export x --format pdf --json"); code != cli.ExitUsage || out != "" || !strings.Contains(said, `"code":"validation-failed"`) {
		t.Errorf("--json: %d, %s%s", code, out, said)
	}
}

// TestWaitInVain: a wait without an event fails with an error that names the reason, in text and in JSON.
func TestWaitInVain(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{"": "relay: no such event came within 1ms\n", " --json": `"detail":"no such event came within 1ms","code":"request-timeout"`} {
		if _, out, said, code := run(t, "wait a --timeout 1ms"+flags); code != cli.ExitFailure || out != "" || !strings.Contains(said, want) {
			t.Errorf("%q: %d, %s%s", flags, code, out, said)
		}
	}
}
