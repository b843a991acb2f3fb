package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCommandLines(t *testing.T) {
	for want, c := range map[string]Command{
		"whoami --json":                       {Name: "whoami"},
		"events stripe-dev -n 5 -f --json":    {Name: "events", Arg: "stripe-dev", N: 5, Follow: true},
		`show 'a b'\''; rm' --json`:           {Name: "show", Arg: "a b'; rm"},
		"replay evt_01k0000000000000 --json":  {Name: "replay", Arg: "evt_01k0000000000000"},
		`replay-queued 'stripe-dev;x' --json`: {Name: "replay-queued", Arg: "stripe-dev;x"},
	} {
		if line := c.line(); line != want {
			t.Errorf("%+v is sent as %s", c, line)
		}
	}
}

func TestCommandOverSSH(t *testing.T) {
	d := newFakeRelay(t)
	d.exec = func(command string) (string, string, int) {
		switch command {
		case "whoami --json":
			return `{"user":"alice"}` + "\n", "", 0
		case "show evt_x --json":
			return "", `{"code":"not-found","detail":"there is nothing here","errors":[]}` + "\n", ExitNotFound
		case "replay evt_x --json":
			return `{"state":"failed"}` + "\n", "", ExitFailure
		}
		return "", "relay: what?\n", ExitUsage
	}
	dialer, _ := newDialer(t, d.listen())
	for _, c := range []struct {
		Command
		out, err string
		exit     int
	}{
		{Command{Name: "whoami"}, `{"user":"alice"}` + "\n", "", -1},
		{Command{Name: "show", Arg: "evt_x"}, "", "there is nothing here", ExitNotFound},
		{Command{Name: "replay", Arg: "evt_x"}, `{"state":"failed"}` + "\n", "", ExitFailure},
		{Command{Name: "other"}, "", "what?", ExitUsage},
	} {
		var out bytes.Buffer
		err := SSH{dialer}.Run(context.Background(), c.Command, &out)
		if out.String() != c.out || exitOf(err) != c.exit || err != nil && err.Error() != c.err {
			t.Errorf("%s: %q, %v", c.Name, out.String(), err)
		}
	}
}

func TestCommandEndsWithItsContext(t *testing.T) {
	d := newFakeRelay(t)
	ctx, cancel := context.WithCancel(context.Background())
	d.exec = func(string) (string, string, int) {
		cancel()
		<-ctx.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		return "", "", 0
	}
	dialer, _ := newDialer(t, d.listen())
	if err := (SSH{dialer}).Run(ctx, Command{Name: "events", Follow: true}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// fakeAPI answers like the API.
func fakeAPI(t *testing.T) *API {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/me", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"user":"alice"}`)
	})
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_5"},{"id":"evt_4"}],"nextCursor":"c"}`)
		} else {
			_, _ = io.WriteString(w, `{"data":[{"id":"evt_3"}],"nextCursor":null}`)
		}
	})
	mux.HandleFunc("POST /api/v1/events/{id}/replay", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"id":%q,"state":"failed"}`, r.PathValue("id"))
	})
	mux.HandleFunc("POST /api/v1/events/{id}/shares", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"expiresIn":"7d","view":false}` || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("share asks with %s", body)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"url":"u"}`)
	})
	mux.HandleFunc("GET /api/v1/aliases", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthorized","detail":"who are you"}`)
	})
	mux.HandleFunc("/api/v1/events/none", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"not-found","detail":"nothing","errors":[{"location":"path.id","message":"bad"}]}`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer rly_x" || r.Host[:13] != "api.localhost" {
			t.Errorf("%s %s: %q at %s", r.Method, r.URL, r.Header.Get("Authorization"), r.Host)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	api, err := NewAPI(strings.Replace(server.URL, "127.0.0.1", "api.localhost", 1)+"/", "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func TestCommandOverTheAPI(t *testing.T) {
	api := fakeAPI(t)
	for _, c := range []struct {
		Command
		out, err string
		exit     int
	}{
		{Command{Name: "whoami"}, `{"user":"alice"}` + "\n", "", -1},
		{Command{Name: "events", Arg: "a", N: 3}, `{"data":[{"id":"evt_5"},{"id":"evt_4"},{"id":"evt_3"}],"nextCursor":null}` + "\n", "", -1},
		{Command{Name: "replay", Arg: "evt_1"}, `{"id":"evt_1","state":"failed"}` + "\n", "", ExitFailure},
		{Command{Name: "share", Arg: "evt_1"}, `{"url":"u"}` + "\n", "", -1},
		{Command{Name: "aliases"}, "", "who are you", ExitRefused},
		{Command{Name: "show", Arg: "none"}, "", "nothing; path.id: bad", ExitNotFound},
		{Command{Name: "show", Arg: "../../x"}, "", "", ExitFailure},
		{Command{Name: "unheard-of"}, "", "", ExitUsage},
	} {
		var out bytes.Buffer
		err := api.Run(context.Background(), c.Command, &out)
		if out.String() != c.out || exitOf(err) != c.exit || c.err != "" && err.Error() != c.err {
			t.Errorf("%s: %q, %v", c.Name, out.String(), err)
		}
	}
}

func TestAPIThatIsNotThere(t *testing.T) {
	addr, _ := refusingAddr(t)
	base := "http://" + addr
	api, err := NewAPI(base, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Run(context.Background(), Command{Name: "whoami"}, io.Discard); exitOf(err) != ExitUnreachable {
		t.Error(err)
	}
	if _, err := NewAPI("relay.example.com", "", ""); exitOf(err) != ExitUsage {
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

// TestNamesOfThisMachineGoThroughNoProxy: the standard library knows localhost only,
// not the names below it.
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
	var e *Error
	if err := api.Run(t.Context(), Command{Name: "whoami"}, io.Discard); !errors.As(err, &e) || !strings.Contains(e.Hint, "https://relay.test") {
		t.Errorf("%+v", e)
	}
}

// TestKeyThatMayNotBeRemovedStays: a token that may not see the keys was taken for an
// account that has none.
func TestKeyThatMayNotBeRemovedStays(t *testing.T) {
	status := http.StatusForbidden
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"code":"forbidden","detail":"no"}`)
	}))
	defer server.Close()
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := api.RemoveKey(t.Context(), newSigner(t).PublicKey()); exitOf(err) != ExitFailure {
		t.Errorf("removed: %v", err)
	}
	if revoked, err := api.RevokeToken(t.Context(), "tok_1"); revoked || err != nil {
		t.Errorf("revoked %t, %v", revoked, err)
	}
	status = http.StatusNoContent
	if revoked, err := api.RevokeToken(t.Context(), "tok_1"); !revoked || err != nil {
		t.Errorf("revoked %t, %v", revoked, err)
	}
}

// TestRefusedTokenFromElsewhere: whoever named the token says what to do.
func TestRefusedTokenFromElsewhere(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthorized","detail":"no"}`)
	}))
	defer server.Close()
	api, err := NewAPI(server.URL, "rly_x", "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"relay login URL", "unset it"} {
		var e *Error
		if _, err := api.Me(t.Context()); !errors.As(err, &e) || !strings.Contains(e.Hint, want) {
			t.Errorf("%q is not the hint of %v", want, err)
		}
		api.TokenHint = "unset it"
	}
}
