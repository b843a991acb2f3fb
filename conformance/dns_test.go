package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"relay/relaytest"
)

// nameServer is the primary DNS server of the zone example.test. It accepts dynamic updates that are signed
// with one TSIG key. Every name in the zone has the address 127.0.0.1.
type nameServer struct {
	addr    string
	updates int

	mu  sync.Mutex
	txt map[string][]string
}

const tsigSecret = "Z2VoZWltLWtleS1vZi1hLXRlc3Q="

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	tcp, udp := listenBoth(t)
	s := &nameServer{addr: tcp.Addr().String(), txt: map[string][]string{}}
	for _, server := range []*dns.Server{{Listener: tcp}, {PacketConn: udp}} {
		listening := make(chan struct{})
		server.Handler, server.TsigSecret = s, map[string]string{"relay.": tsigSecret}
		server.NotifyStartedFunc = func() { close(listening) }
		// By default, the library rejects dynamic updates.
		server.MsgAcceptFunc = func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }
		go func() { _ = server.ActivateAndServe() }()
		<-listening
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return s
}

// listenBoth listens on a port of loopback that is free for TCP and for UDP.
func listenBoth(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp
		}
		tcp.Close()
	}
	t.Fatal("no port is free for TCP and UDP")
	return nil, nil
}

// ServeDNS implements dns.Handler.
func (s *nameServer) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := new(dns.Msg).SetReply(m)
	answer.Authoritative = true
	header := func(name string, kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 1}
	}
	name := strings.ToLower(m.Question[0].Name)
	soa := &dns.SOA{Hdr: header("example.test.", dns.TypeSOA), Ns: "ns.example.test.", Mbox: "ops.example.test.", Serial: 1, Minttl: 1}
	switch {
	case m.Opcode == dns.OpcodeUpdate && (m.IsTsig() == nil || w.TsigStatus() != nil || name != "example.test."):
		answer.Rcode = dns.RcodeRefused
	case m.Opcode == dns.OpcodeUpdate:
		for _, rr := range m.Ns {
			s.set(rr.Header().Name, rr.(*dns.TXT).Txt[0], rr.Header().Class == dns.ClassINET)
		}
		answer.SetTsig("relay.", dns.HmacSHA256, 300, time.Now().Unix())
	case !dns.IsSubDomain("example.test.", name):
		answer.Rcode = dns.RcodeNameError
	default:
		switch m.Question[0].Qtype {
		case dns.TypeTXT:
			for _, text := range s.txt[name] {
				answer.Answer = append(answer.Answer, &dns.TXT{Hdr: header(name, dns.TypeTXT), Txt: []string{text}})
			}
		case dns.TypeSOA:
			if name == "example.test." {
				answer.Answer = append(answer.Answer, soa)
			}
		case dns.TypeA:
			answer.Answer = append(answer.Answer, &dns.A{Hdr: header(name, dns.TypeA), A: net.IPv4(127, 0, 0, 1)})
		case dns.TypeNS:
			if name == "example.test." {
				answer.Answer = append(answer.Answer, &dns.NS{Hdr: header(name, dns.TypeNS), Ns: "ns.example.test."})
			}
		}
		if len(answer.Answer) == 0 {
			answer.Ns = append(answer.Ns, soa)
		}
	}
	_ = w.WriteMsg(answer)
}

// set removes the TXT record with the given text from a name, if the name has one. If the parameter there is
// true, it then adds the record.
func (s *nameServer) set(name, text string, there bool) {
	s.updates++
	key := strings.ToLower(dns.Fqdn(name))
	s.txt[key] = slices.DeleteFunc(s.txt[key], func(had string) bool { return had == text })
	if there {
		s.txt[key] = append(s.txt[key], text)
	}
}

// cloudflare imitates the parts of Cloudflare's API that deploy/package/acme-dns-cloudflare uses, for the
// zone of the name server, and returns the URL of the imitation.
func (s *nameServer) cloudflare(t *testing.T) string {
	type record struct{ ID, Type, Name, Content string }
	reply := func(w http.ResponseWriter, result any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"success": true, "result": result})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /zones", func(w http.ResponseWriter, r *http.Request) {
		zones := []map[string]string{}
		if r.FormValue("name") == "example.test" {
			zones = append(zones, map[string]string{"id": "z1", "name": "example.test"})
		}
		reply(w, zones)
	})
	mux.HandleFunc("POST /zones/z1/dns_records", func(w http.ResponseWriter, r *http.Request) {
		var in record
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Type != "TXT" {
			t.Errorf("a record of type %q is set, %v", in.Type, err)
		}
		s.set(in.Name, strings.Trim(in.Content, `"`), true)
		reply(w, in)
	})
	mux.HandleFunc("GET /zones/z1/dns_records", func(w http.ResponseWriter, r *http.Request) {
		name := r.FormValue("name")
		list := []map[string]string{}
		for _, text := range s.txt[dns.Fqdn(name)] {
			list = append(list, map[string]string{"id": name + "=" + text, "content": `"` + text + `"`})
		}
		reply(w, list)
	})
	mux.HandleFunc("DELETE /zones/z1/dns_records/{id}", func(w http.ResponseWriter, r *http.Request) {
		name, text, _ := strings.Cut(r.PathValue("id"), "=")
		s.set(name, text, false)
		reply(w, nil)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+tsigSecret {
			http.Error(w, `{"success":false}`, http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// left returns the number of TXT records in the zone.
func (s *nameServer) left() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, texts := range s.txt {
		n += len(texts)
	}
	return n
}

// TestWildcardCertificate gets the certificates of the base host and of all aliases by DNS-01, from a CA that
// reaches no port of relayd. One case sets the DNS records by dynamic updates, the other by a command. All
// aliases share one certificate, even those that never had a tunnel, and no record remains in the zone.
func TestWildcardCertificate(t *testing.T) {
	t.Parallel()
	for way, setUp := range map[string]func(t *testing.T, names *nameServer) []string{
		"rfc2136": func(t *testing.T, names *nameServer) []string {
			key := t.TempDir() + "/tsig"
			if err := os.WriteFile(key, []byte("relay:hmac-sha256:"+tsigSecret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"RELAY_ACME_DNS_SERVER=" + names.addr, "RELAY_ACME_DNS_KEY_FILE=" + key}
		},
		"command": func(t *testing.T, names *nameServer) []string {
			return []string{"RELAY_ACME_DNS_COMMAND=../deploy/package/acme-dns-cloudflare", "CLOUDFLARE_API=" + names.cloudflare(t), "CLOUDFLARE_TOKEN=" + tsigSecret}
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			names := newNameServer(t)
			testWildcard(t, names, append(setUp(t, names), "RELAY_ACME_DNS="+way))
		})
	}
}

func testWildcard(t *testing.T, names *nameServer, settings []string) {
	ca := newPebbleWithDNS(t, "1", "1", 90*24*time.Hour, names.addr)
	https := relaytest.FreeAddr(t)
	r := newRelay(t, "", append(settings, "RELAY_HTTPS_ADDR="+https, "RELAY_BASE_URL=https://relay.example.test", "RELAY_ALIAS_DOMAIN=hooks.example.test",
		"RELAY_TLS=acme", "RELAY_ACME_CA="+ca.directory, "RELAY_ACME_CA_ROOT="+ca.root, "RELAY_ACME_DNS_RESOLVERS="+names.addr)...)
	r.start()
	roots := ca.issued()
	var serials []string
	for _, host := range []string{"relay.example.test", "one.hooks.example.test", "two.hooks.example.test"} {
		var cert *x509.Certificate
		var err error
		relaytest.Until(t, 60*time.Second, "the certificate of "+host, func() bool {
			cert, err = certificateOf(https, host, roots)
			return err == nil
		})
		if want := "*.hooks.example.test"; strings.HasSuffix(host, ".hooks.example.test") && cert.DNSNames[0] != want {
			t.Errorf("%s has the certificate of %v", host, cert.DNSNames)
		}
		serials = append(serials, cert.SerialNumber.String())
	}
	if serials[1] != serials[2] || serials[0] == serials[1] {
		t.Errorf("certificates of base host and aliases: %v", serials)
	}
	if _, err := certificateOf(https, "deep.er.hooks.example.test", roots); err == nil {
		t.Error("a deeper name has a certificate")
	}
	if n := names.left(); n != 0 || names.updates == 0 {
		t.Errorf("%d records are left after %d updates", n, names.updates)
	}
	if strings.Contains(r.log.String(), tsigSecret) {
		t.Error("the log tells the secret")
	}
}

// certificateOf returns the certificate that the TLS server at addr presents for host.
func certificateOf(addr, host string, roots *x509.CertPool) (*x509.Certificate, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", addr, &tls.Config{ServerName: host, RootCAs: roots})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}
