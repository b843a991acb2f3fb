package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:3000":  "http://127.0.0.1:3000",
		"http://localhost":       "http://localhost",
		"https://[::1]:8443/":    "https://[::1]:8443",
		"localhost:3000":         "",
		"http://":                "",
		"http://:3000":           "",
		"ftp://x":                "",
		"http://x/y":             "",
		"http://x?y":             "",
		"http://u@x":             "",
		"http://x:99999":         "",
		"http://x:0":             "",
		"3000":                   "",
		"":                       "",
		"http://a b":             "",
		"https://example.com":    "https://example.com",
		"http://127.0.0.1:3000#": "http://127.0.0.1:3000",
	} {
		got, err := ParseTarget(in)
		if got.URL != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", in, got.URL, err)
		}
		if err != nil && (exitOfError(err) != cli.ExitUsage || err.(*cli.Error).Hint == "") {
			t.Errorf("%q: %+v", in, err)
		}
	}
	for host, unverified := range map[string]bool{"https://localhost:1": true, "https://127.0.0.2": true, "https://a.localhost": true, "https://example.com": false} {
		if got, _ := ParseTarget(host); got.tls == nil || got.tls.InsecureSkipVerify != unverified {
			t.Errorf("%s: certificate unverified: %v", host, !unverified)
		}
	}
}

func TestTargetThatWasMeant(t *testing.T) {
	for in, want := range map[string]string{
		"3000": "did you mean http://127.0.0.1:3000", ":3000": "did you mean http://127.0.0.1:3000",
		"localhost:3000": "did you mean http://localhost:3000", "unix:/run/app.sock": "write it like http://127.0.0.1:3000",
		"/run/app.sock": "write it like http://127.0.0.1:3000", "unix:///run/app.sock": "write it like http://127.0.0.1:3000",
	} {
		var e *cli.Error
		if _, err := ParseTarget(in); !errors.As(err, &e) || e.Hint != want {
			t.Errorf("%s: %+v", in, e)
		}
	}
}

// TestPortMeansBothLoopbacks: --port and localhost mean 127.0.0.1, then ::1, even if the machine resolves
// localhost differently.
func TestPortMeansBothLoopbacks(t *testing.T) {
	target, err := PortTarget(3000)
	if want := []string{"127.0.0.1:3000", "[::1]:3000"}; err != nil || !slices.Equal(target.addrs, want) {
		t.Errorf("addresses %q, %v; want %q", target.addrs, err, want)
	}
	for url, want := range map[string][]string{
		"http://localhost:3000": target.addrs, "https://App.localhost.:3000": target.addrs,
		"http://127.0.0.1:3000": {"127.0.0.1:3000"}, "http://[::1]:3000": {"[::1]:3000"}, "http://app.test:3000": {"app.test:3000"},
	} {
		if got, err := ParseTarget(url); err != nil || !slices.Equal(got.addrs, want) {
			t.Errorf("%s: addresses %q, %v; want %q", url, got.addrs, err, want)
		}
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := PortTarget(port); exitOfError(err) != cli.ExitUsage {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// TestSecondAddressIsDialed: the next address is dialed if, and only if, the first one refuses. The test
// needs no IPv6.
func TestSecondAddressIsDialed(t *testing.T) {
	refused, _ := refusingAddr(t)
	first, _ := newListener(t)
	second, _ := newListener(t)
	for _, c := range []struct {
		addrs []string
		want  net.Listener
	}{
		{[]string{refused, second.Addr().String()}, second},
		{[]string{first.Addr().String(), second.Addr().String()}, first},
	} {
		conn, err := Target{addrs: c.addrs}.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		_ = c.want.(*net.TCPListener).SetDeadline(time.Now().Add(testTimeout))
		if accepted, err := c.want.Accept(); err != nil {
			t.Errorf("%v: %s was not dialed: %v", c.addrs, c.want.Addr(), err)
		} else {
			accepted.Close()
		}
	}
}

// TestPortOnIPv6Loopback: a local server that listens on ::1 only is reached. On a machine without an IPv6
// loopback address, the test passes without a check.
func TestPortOnIPv6Loopback(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		addrs, addrsErr := net.InterfaceAddrs()
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.Equal(net.IPv6loopback) {
				t.Fatal(err)
			}
		}
		t.Logf("this machine has no IPv6 loopback address (%v, %v)", err, addrsErr)
		return
	}
	defer ln.Close()
	target, err := PortTarget(ln.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := target.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestHTTPSTargetThroughTheTunnel(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" "+r.Host)
	}))
	defer server.Close()
	target, err := ParseTarget(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := online(t, target)
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	_, _ = io.WriteString(ch, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
	text, err := io.ReadAll(ch)
	ch.Close()
	if body, _ := io.ReadAll(readResponse(t, text).Body); err != nil || string(body) != "HTTP/1.1 a.test" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestWhatIsSaidAboutFailedDials(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err    error
		reason uint32
		class  string
	}{
		{refused, 2, "refused"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connectex", syscall.Errno(10061))}, 2, "refused"}, // the error on Windows
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x"}}, 1, "unresolvable"},
		{context.DeadlineExceeded, 2, "timeout"},
		{errors.New(strings.Repeat("ä", 300)), 2, "other"},
	} {
		f := dialFailed(c.err)
		if f.Reason != c.reason || f.Class != c.class || f.Text == "" || len(f.Text) > 256 {
			t.Errorf("%v: %+v", c.err, f)
		}
		var told []TargetEvent
		m := newTargetMonitor(func(e TargetEvent) { told = append(told, e) })
		m.dialed(Forward{Alias: "a"}, c.err)
		if down := c.class == "refused" || c.class == "unresolvable"; down != (len(told) == 1 && told[0].Kind == LocalDown) {
			t.Errorf("%v: %+v", c.err, told)
		}
	}
}

func TestHostHeaderValues(t *testing.T) {
	for v, ok := range map[string]bool{"rewrite": true, "shop.test:80": true, "": true, "Rewrite": false, "a b": false, "a\r\nX: y": false, "\x7f": false} {
		if _, err := (Target{}).WithHostHeader(v); (err == nil) != ok {
			t.Errorf("%q: %v", v, err)
		}
	}
}
