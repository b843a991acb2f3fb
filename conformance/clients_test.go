package conformance

import (
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// TestClientsCarryTenMiB sends 10 MiB in each direction through every common client and compares hashes.
func TestClientsCarryTenMiB(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	up, down := random(10<<20, 1), random(10<<20, 2)
	upSum := sha256.Sum256([]byte(up))
	seen := make(chan [32]byte, 4)
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := sha256.New()
		_, _ = io.Copy(h, req.Body)
		seen <- [32]byte(h.Sum(nil))
		_, _ = io.WriteString(w, down)
	}))
	t.Cleanup(local.Close)
	addr := local.Listener.Addr().String()
	_, localPort, _ := net.SplitHostPort(addr)
	host, port, _ := net.SplitHostPort(r.ssh)

	for name, connect := range map[string]func(alias string){
		"openssh": func(alias string) { r.tunnel(alias, addr) },
		"dropbear": func(alias string) {
			r.client(alias, "dbclient", "-y", "-y", "-N", "-i", r.dropbearKey(), "-p", port, "-R", alias+":80:"+addr, "admin@"+host)
		},
		"plink": func(alias string) {
			r.client(alias, "plink", "-batch", "-N", "-hostkey", r.hostKey(), "-i", r.puttyKey(), "-P", port, "-R", alias+":80:"+addr, "admin@"+host)
		},
		"relay": func(alias string) {
			r.client(alias, relaytest.Program(r.t, "relay"), "up", "--server", r.ssh, "--identity", r.key, "--port", localPort, "--alias", alias)
		},
	} {
		t.Run(name, func(t *testing.T) {
			alias := "big-" + name
			connect(alias)
			conn := r.dial()
			_ = conn.SetDeadline(time.Now().Add(3 * time.Minute))
			head := "POST /big HTTP/1.1\r\nHost: " + alias + ".localhost\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(up)) + "\r\n\r\n"
			go func() { _, _ = io.WriteString(conn, head+up) }()
			answer, err := io.ReadAll(conn)
			if err != nil {
				t.Fatalf("answer: %v", err)
			}
			if _, body, _ := strings.Cut(string(answer), "\r\n\r\n"); !strings.HasPrefix(string(answer), "HTTP/1.1 200") || !holds(body, down) {
				t.Errorf("the answer of %d bytes is not what the local server sent: %.200q", len(answer), answer)
			}
			if got := <-seen; got != upSum {
				t.Error("the local server got other bytes")
			}
		})
	}
}

// holds reports whether a body, as recorded on the wire, equals want. The body may be chunked: the local
// server of net/http sends a large response in chunks.
func holds(body, want string) bool {
	if body == want {
		return true
	}
	var plain strings.Builder
	for {
		size, rest, ok := strings.Cut(body, "\r\n")
		n, err := strconv.ParseInt(size, 16, 64)
		if !ok || err != nil || int64(len(rest)) < n+2 {
			return false
		}
		if n == 0 {
			return plain.String() == want
		}
		plain.WriteString(rest[:n])
		body = rest[n+2:]
	}
}
