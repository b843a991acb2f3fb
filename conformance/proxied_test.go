package conformance

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// proxyHeaders returns PROXY headers that name the source 203.0.113.9:52011.
func proxyHeaders() map[string][]byte {
	v2 := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"), 203, 0, 113, 9, 127, 0, 0, 1, 0xcb, 0x2b, 0, 80)
	return map[string][]byte{"v1": []byte("PROXY TCP4 203.0.113.9 127.0.0.1 52011 80\r\n"), "v2": v2}
}

// TestProxiedHTTP: the record of a request has the source that a trusted proxy names. A request with a PROXY
// header from another source gets 400, and a trusted source without a PROXY header gets no answer.
func TestProxiedHTTP(t *testing.T) {
	t.Parallel()
	r := newRelay(t, "", "RELAY_TRUSTED_PROXIES=127.0.0.2/32")
	r.start()
	r.token = strings.TrimSpace(r.relayd("token", "add", "--user", "admin"))
	r.tunnel("shop", okServer(t))
	for version, header := range proxyHeaders() {
		c := dialFrom(t, "127.0.0.2", r.http)
		for i := range header { // in pieces, because a header may arrive in several packets
			if _, err := c.Write(header[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if got := ask(t, c, "GET", "shop.localhost", "/"+version); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%s: %q", version, got)
		}
		if path, from := r.lastSource("shop"); path != "/"+version || from != "203.0.113.9:52011" {
			t.Errorf("%s: %s is recorded as from %s, want the source of the header", version, path, from)
		}
		c = dialFrom(t, "127.0.0.1", r.http)
		if _, err := c.Write(header); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, c, "GET", "shop.localhost", "/forged"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%s from a source that is not trusted: %q, want 400", version, got)
		}
	}
	if got := ask(t, dialFrom(t, "127.0.0.2", r.http), "GET", "shop.localhost", "/bare"); got != "" {
		t.Errorf("a trusted source without a header was answered %q", got)
	}
}

// lastSource returns the path and the source of an alias' newest event.
func (r *relayServer) lastSource(alias string) (path, from string) {
	r.t.Helper()
	var page struct {
		Data []struct{ Path, RemoteAddr string }
	}
	if err := json.Unmarshal(r.must(200, "GET", "/events?limit=1&alias="+alias, nil), &page); err != nil {
		r.t.Fatal(err)
	}
	if len(page.Data) != 1 {
		return "", ""
	}
	return page.Data[0].Path, page.Data[0].RemoteAddr
}

// TestProxiedTLS: the PROXY header comes before the TLS ClientHello. A connection without a valid header, or
// with a header from an untrusted source, gets no TLS.
func TestProxiedTLS(t *testing.T) {
	t.Parallel()
	r, tg := newFilesRig(t, "RELAY_TRUSTED_PROXIES=127.0.0.2/32")
	tg.say(ok, true)
	over := func(source string, header []byte) (string, error) {
		c := dialFrom(t, source, r.https)
		if _, err := c.Write(header); err != nil {
			t.Fatal(err)
		}
		s := tls.Client(c, &tls.Config{ServerName: overTLS, RootCAs: r.roots})
		if err := s.HandshakeContext(t.Context()); err != nil {
			return "", err
		}
		return ask(t, s, "GET", overTLS, "/"), nil
	}
	for version, header := range proxyHeaders() {
		if got, err := over("127.0.0.2", header); got != ok || err != nil {
			t.Errorf("%s: %q, %v", version, got, err)
		}
		tg.next()
		if path, from := r.lastSource("shop"); path != "/" || from != "203.0.113.9:52011" {
			t.Errorf("%s: %s is recorded as from %s", version, path, from)
		}
		for source, bad := range map[string][]byte{"127.0.0.1": header, "127.0.0.2": header[:len(header)-1], "127.0.0.3": header} {
			if got, err := over(source, bad); err == nil {
				t.Errorf("%s, %d bytes from %s: %q", version, len(bad), source, got)
			}
		}
	}
	if got, err := over("127.0.0.2", nil); err == nil {
		t.Errorf("a trusted source without a header: %q", got)
	}
}

func dialFrom(t *testing.T, source, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// TestProxiedSSH: a login works behind a PROXY header from a trusted source, and without a header from
// another source. A trusted source without a header and another source with a header fail to log in.
func TestProxiedSSH(t *testing.T) {
	t.Parallel()
	r := newRelay(t, "", "RELAY_TRUSTED_PROXIES=127.0.0.2/32")
	r.start()
	for version, header := range proxyHeaders() {
		c := dialFrom(t, "127.0.0.2", r.ssh)
		if _, err := c.Write(header); err != nil {
			t.Fatal(err)
		}
		if out := r.whoami(c); !bytes.Contains(out, []byte("admin")) {
			t.Errorf("%s: whoami said %q", version, out)
		}
		c = dialFrom(t, "127.0.0.1", r.ssh)
		if _, err := c.Write(header); err != nil {
			t.Fatal(err)
		}
		if out := r.whoami(c); out != nil {
			t.Errorf("%s from a source that is not trusted: whoami said %q", version, out)
		}
	}
	if out := r.whoami(dialFrom(t, "127.0.0.2", r.ssh)); out != nil {
		t.Errorf("a trusted source without a header got in: %q", out)
	}
	if out := r.whoami(dialFrom(t, "127.0.0.1", r.ssh)); !bytes.Contains(out, []byte("admin")) {
		t.Errorf("without a proxy: whoami said %q", out)
	}
}

// whoami runs the command whoami over c; nil = the login failed.
func (r *relayServer) whoami(c net.Conn) []byte {
	r.t.Helper()
	text, err := os.ReadFile(r.key)
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		r.t.Fatal(err)
	}
	conn, chans, reqs, err := ssh.NewClientConn(c, r.ssh, &ssh.ClientConfig{
		User: "admin", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		return nil
	}
	client := ssh.NewClient(conn, chans, reqs)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := session.CombinedOutput("whoami")
	if err != nil {
		r.t.Errorf("whoami: %v", err)
	}
	return out
}
