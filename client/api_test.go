package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/cli"
	"relay/link"
)

// apiServer serves a handler as the API, over HTTP and over SSH, and counts the requests.
type apiServer struct {
	mu    sync.Mutex
	asked []string
}

func (s *apiServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// eachTransport runs a test over HTTP with a token and over SSH with a key.
func eachTransport(t *testing.T, handler http.Handler, test func(t *testing.T, api *cli.API, s *apiServer)) {
	t.Helper()
	counted := func(s *apiServer, token string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != token || r.Header.Get("User-Agent") != "relay/test" {
				t.Errorf("%s %s: %q by %q", r.Method, r.URL, r.Header.Get("Authorization"), r.UserAgent())
			}
			body, _ := io.ReadAll(r.Body)
			s.mu.Lock()
			s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
			s.mu.Unlock()
			handler.ServeHTTP(w, r)
		})
	}
	t.Run("http", func(t *testing.T) {
		s := &apiServer{}
		server := httptest.NewServer(counted(s, "Bearer rly_x"))
		t.Cleanup(server.Close)
		api, err := NewAPI(strings.Replace(server.URL, "127.0.0.1", "api.localhost", 1)+"/", "rly_x", "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.Close)
		test(t, api, s)
	})
	t.Run("ssh", func(t *testing.T) {
		s, d := &apiServer{}, newFakeRelay(t)
		d.api = http.NewServeMux()
		d.api.Handle("/", counted(s, ""))
		dialer, _ := newDialer(t, d.listen())
		api := NewSSHAPI(dialer)
		t.Cleanup(api.Close)
		test(t, api, s)
	})
}

// answers returns a handler. Its answer to a request is the entry "METHOD PATH" of list: a body, or a status and
// a body.
func answers(list map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := list[r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1")]
		var status int
		if !known {
			status, answer = http.StatusBadGateway, "no relay"
		} else if n, err := fmt.Sscanf(answer, "%d ", &status); n == 1 && err == nil {
			answer = answer[4:]
		} else {
			status = http.StatusOK
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
}

// TestAnswersAndErrors: an answer is passed on unchanged. An error has the text of the relay, and the exit code
// that belongs to the error code in the relay's answer.
func TestAnswersAndErrors(t *testing.T) {
	handler := answers(map[string]string{
		"GET /me":                 `{"user":"alice","new":1}` + "\n",
		"POST /events/e/replay":   `{"id":"e","state":"failed"}`,
		"POST /events/ok/replay":  `{"id":"ok","state":"delivered"}`,
		"GET /aliases":            `401 {"code":"unauthorized","detail":"who are you"}`,
		"GET /events/none":        `404 {"code":"not-found","detail":"nothing","errors":[{"location":"path.id","message":"bad"}]}`,
		"GET /events/odd":         `422 {"code":"validation-failed","detail":"odd"}`,
		"GET /events/busy":        `429 {"code":"rate-limited","detail":"later"}`,
		"POST /events/odd/replay": `409 {"code":"event-not-replayable","detail":"no"}`,
		"GET /text":               "no JSON",
	})
	type question func(context.Context, *cli.API) (json.RawMessage, error)
	get := func(path string) question {
		return func(ctx context.Context, a *cli.API) (json.RawMessage, error) {
			return a.Call(ctx, http.MethodGet, path, nil)
		}
	}
	replay := func(id string) question {
		return func(ctx context.Context, a *cli.API) (json.RawMessage, error) { return a.Replay(ctx, id) }
	}
	eachTransport(t, handler, func(t *testing.T, api *cli.API, _ *apiServer) {
		for name, c := range map[string]struct {
			ask      question
			out, err string
			exit     int
		}{
			"answer":           {get("/me"), `{"user":"alice","new":1}` + "\n", "", -1},
			"delivered replay": {replay("ok"), `{"id":"ok","state":"delivered"}`, "", -1},
			"failed replay":    {replay("e"), `{"id":"e","state":"failed"}`, "", cli.ExitFailure},
			"unauthorized":     {get("/aliases"), "", "who are you", cli.ExitRefused},
			"not found":        {get("/events/none"), "", "nothing; path.id: bad", cli.ExitNotFound},
			"invalid":          {get("/events/odd"), "", "odd", cli.ExitUsage},
			"rate limit":       {get("/events/busy"), "", "later", cli.ExitFailure},
			"conflict":         {replay("odd"), "", "no", cli.ExitFailure},
			"no relay":         {get("/x"), "", "answered 502", cli.ExitFailure},
			"no JSON": {func(ctx context.Context, a *cli.API) (json.RawMessage, error) {
				return nil, a.Get(ctx, "/text", &struct{}{})
			}, "", "cannot be read", cli.ExitFailure},
		} {
			out, err := c.ask(t.Context(), api)
			if string(out) != c.out || exitOfError(err) != c.exit || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		}
	})
}

// TestOneConnectionForAllRequests: consecutive requests share a channel, and concurrent requests share an SSH
// connection.
func TestOneConnectionForAllRequests(t *testing.T) {
	d := newFakeRelay(t)
	dialer, _ := newDialer(t, d.listen())
	api := NewSSHAPI(dialer)
	defer api.Close()
	var wg sync.WaitGroup
	for range 3 * 3 {
		wg.Go(func() {
			if err := api.Get(t.Context(), "/ssh", &struct{}{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.open) - 1; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestServerGoneInTheMiddle: a relay that ends during an answer is reported as unreachable, and the
// next request makes a new connection.
func TestServerGoneInTheMiddle(t *testing.T) {
	for name, ask := range map[string]func(*cli.API, context.Context) error{
		"answer": func(a *cli.API, ctx context.Context) error {
			_, err := a.Call(ctx, http.MethodGet, "/half", nil)
			return err
		},
		"get": func(a *cli.API, ctx context.Context) error { return a.Get(ctx, "/half", &struct{}{}) },
		"nothing": func(a *cli.API, ctx context.Context) error {
			_, err := a.Call(ctx, http.MethodPost, "/none", nil)
			return err
		},
		"list": func(a *cli.API, ctx context.Context) error {
			_, err := a.Events(ctx, url.Values{}, 5)
			return err
		},
		"wait": func(a *cli.API, ctx context.Context) error {
			_, err := a.Wait(ctx, url.Values{}, time.Hour)
			return err
		},
		"follow": func(a *cli.API, ctx context.Context) error {
			return a.Follow(ctx, url.Values{"alias": {"a"}}, 5, func(string) {}, ignore)
		},
		"export": func(a *cli.API, ctx context.Context) error {
			_, _, err := a.Export(ctx, "e", "go")
			return err
		},
		"replay": func(a *cli.API, ctx context.Context) error {
			_, err := a.Replay(ctx, "e")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFakeRelay(t)
			hangUp := func(w http.ResponseWriter, _ *http.Request) {
				d.mu.Lock()
				last := d.open[len(d.open)-1]
				d.mu.Unlock()
				last.Close()
			}
			d.api.HandleFunc("GET /api/v1/half", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, `{"data":[`)
				_ = http.NewResponseController(w).Flush()
				hangUp(w, r)
			})
			d.api.HandleFunc("/", hangUp)
			d.api.HandleFunc("GET /api/v1/stream", hangUp)
			dialer, _ := newDialer(t, d.listen())
			api := NewSSHAPI(dialer)
			defer api.Close()
			if err := ask(api, t.Context()); exitOfError(err) != cli.ExitUnreachable {
				t.Errorf("over SSH: exit %d, %v", exitOfError(err), err)
			}
			if err := api.Get(t.Context(), "/ssh", &struct{}{}); err != nil {
				t.Errorf("the next request: %v", err)
			}

			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/half") {
					w.Header().Set("Content-Length", "1000")
					_, _ = io.WriteString(w, `{"data":[`)
					_ = http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			}))
			defer web.Close()
			byToken, err := NewAPI(web.URL, "rly_x", "test")
			if err != nil {
				t.Fatal(err)
			}
			defer byToken.Close()
			if err := ask(byToken, t.Context()); exitOfError(err) != cli.ExitUnreachable {
				t.Errorf("over HTTP: exit %d, %v", exitOfError(err), err)
			}
		})
	}
}

// TestLossWhileTheConnectionIsClosed: after a loss, the next request makes a new connection, even if the goroutine that
// noticed the loss has not finished closing the old one.
func TestLossWhileTheConnectionIsClosed(t *testing.T) {
	dialer, _ := newDialer(t, newFakeRelay(t).listen())
	l := &sshLink{dialer: dialer}
	if err := l.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := l.conn
	log := &stalledLog{Handler: slog.DiscardHandler, begun: make(chan struct{}), goOn: make(chan struct{})}
	old.SetLog(slog.New(log))
	go old.Close(link.PeerClosed)
	<-log.begun
	defer func() {
		close(log.goOn)
		<-old.Done()
	}()
	_ = l.Lose(io.EOF)
	if err := l.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.conn == old {
		t.Error("the next request uses the connection that was lost")
	}
	_ = l.Lose(nil)
}

// stalledLog is a log whose first line is written when goOn is closed.
type stalledLog struct {
	slog.Handler
	begun, goOn chan struct{}
}

func (l *stalledLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *stalledLog) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *stalledLog) Handle(context.Context, slog.Record) error {
	close(l.begun)
	<-l.goOn
	return nil
}

// TestRequestEndsWithItsContext: a request ends with its context even if the relay does not answer.
func TestRequestEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 1)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	eachTransport(t, handler, func(t *testing.T, api *cli.API, _ *apiServer) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		if _, err := api.Call(ctx, http.MethodGet, "/me", nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestAPIThatIsNotThere(t *testing.T) {
	addr, _ := refusingAddr(t)
	api, err := NewAPI("http://"+addr, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	dialer, _ := newDialer(t, addr)
	for _, a := range []*cli.API{api, NewSSHAPI(dialer)} {
		if _, err := a.Me(t.Context()); exitOfError(err) != cli.ExitUnreachable {
			t.Error(err)
		}
	}
	if _, err := NewAPI("relay.example.com", "", ""); exitOfError(err) != cli.ExitUsage {
		t.Error(err)
	}
	for host, want := range map[string]string{
		"127.0.0.1": "http://127.0.0.1:8080", "localhost": "http://127.0.0.1:8080",
		"relay.example.com": "https://relay.example.com", "2001:db8::1": "https://[2001:db8::1]",
	} {
		if base := BaseURL(host); base != want {
			t.Errorf("%s: %s", host, base)
		}
	}
}

func TestTokenIsNotSentInTheClear(t *testing.T) {
	for base, ok := range map[string]bool{
		"http://relay.example.com": false, "https://relay.example.com": true, "http://127.0.0.1:8080": true,
		"http://localhost": true, "http://relay.localhost:8080": true, "http://192.0.2.1": false,
	} {
		if _, err := NewAPI(base, "rly_x", "test"); (err == nil) != ok || err != nil && exitOfError(err) != cli.ExitRefused {
			t.Errorf("%s: %v", base, err)
		}
		if _, err := NewAPI(base, "", "test"); err != nil {
			t.Errorf("%s without a token: %v", base, err)
		}
	}
}

// TestNamesOfThisMachineGoThroughNoProxy: requests to names below localhost do not use a proxy. The standard
// library exempts only localhost itself.
func TestNamesOfThisMachineGoThroughNoProxy(t *testing.T) {
	for _, base := range []string{"http://relay.localhost:8080", "http://127.0.0.1", "http://[::1]:1"} {
		r, err := http.NewRequest(http.MethodGet, base, nil)
		if err != nil {
			t.Fatal(err)
		}
		if proxy, err := proxyOf(r); proxy != nil || err != nil {
			t.Errorf("%s goes through %v, %v", base, proxy, err)
		}
	}
}

func TestRedirectSaysWhereTo(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("https://relay.test/login", http.StatusFound))
	defer server.Close()
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	var e *cli.Error
	if _, err := api.Me(t.Context()); !errors.As(err, &e) || !strings.Contains(e.Hint, "https://relay.test") {
		t.Errorf("%+v", e)
	}
}

// TestAccount checks the requests about tokens and keys. If the token has no scope for keys, the list of keys is
// an error and not empty.
func TestAccount(t *testing.T) {
	list := map[string]string{
		"POST /tokens": `201 {"id":"tok_1","token":"rly_x"}`, "GET /keys": `{"data":[]}`, "POST /keys": `201 {"id":"key_1"}`,
		"DELETE /tokens/tok_1": "204 ", "DELETE /tokens/gone": `404 {"code":"not-found","detail":"no"}`,
		"DELETE /tokens/narrow": `403 {"code":"forbidden","detail":"no"}`,
	}
	eachTransport(t, answers(list), func(t *testing.T, api *cli.API, s *apiServer) {
		token, err := api.MakeToken(t.Context(), "relay on my box")
		if err != nil || token.Token != "rly_x" || token.ID != "tok_1" || s.requests()[0] != `POST /api/v1/tokens {"expiresIn":"90d","name":"relay on my box","renew":true}` {
			t.Error(token, err, s.requests())
		}
		if err := api.RegisterKey(t.Context(), "box", newSigner(t).PublicKey()); err != nil || !strings.HasPrefix(s.requests()[2], `POST /api/v1/keys {"key":"ssh-ed25519 `) {
			t.Error(err, s.requests())
		}
		for id, want := range map[string]bool{"tok_1": true, "gone": true, "narrow": false} {
			if revoked, err := api.RevokeToken(t.Context(), id); revoked != want || err != nil {
				t.Errorf("%s revoked %t, %v", id, revoked, err)
			}
		}
	})
	refused := map[string]string{"GET /keys": `403 {"code":"forbidden","detail":"no"}`, "POST /tokens": "{}"}
	eachTransport(t, answers(refused), func(t *testing.T, api *cli.API, _ *apiServer) {
		if err := api.RemoveKey(t.Context(), newSigner(t).PublicKey()); exitOfError(err) != cli.ExitFailure {
			t.Errorf("removed: %v", err)
		}
		if _, err := api.MakeToken(t.Context(), "x"); exitOfError(err) != cli.ExitFailure {
			t.Error(err)
		}
	})
}

// TestRefusedTokenFromElsewhere: if the relay refuses a token, the error advises to log in again, or gives the
// advice API.TokenHint if that is set. Over SSH there is no token, and no advice.
func TestRefusedTokenFromElsewhere(t *testing.T) {
	eachTransport(t, answers(map[string]string{"GET /me": `401 {"code":"unauthorized","detail":"no"}`}), func(t *testing.T, api *cli.API, _ *apiServer) {
		for _, want := range []string{"relay login URL", "unset it"} {
			if api.OverSSH() {
				want = ""
			}
			var e *cli.Error
			if _, err := api.Me(t.Context()); !errors.As(err, &e) || !strings.Contains(e.Hint, want) || want == "" && e.Hint != "" {
				t.Errorf("%q is not the hint of %+v", want, e)
			}
			api.TokenHint = "unset it"
		}
	})
}
