package dashboard_test

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// demoServer is a complete installation: the relayd program, a local shop, a tunnel by ssh -R between
// them, and senders. Everything in it is real, except for the bug in the shop.
type demoServer struct {
	t       *testing.T
	relayd  string
	home    string
	data    string // data dir of relayd
	base    string // address of the dashboard
	port    string
	sshPort string
	shop    demoApp
	shopAt  string // address of the shop
	account string
	aliases []string  // aliases with a tunnel to the shop
	sentAt  time.Time // the time in the signatures of the senders; zero = now
	stops   []func()  // functions that end what was started
}

// Secrets with which demoServer signs the webhooks of the senders.
const (
	stripeSecret  = "whsec_5f2b8c1e"
	githubSecret  = "it's a secret to everybody"
	shopifySecret = "shpss_5f2b8c1e"
)

// newDemoServer starts a demoServer. If known is set, it uses each default port that is free; otherwise it uses
// any free ports.
func newDemoServer(t *testing.T, relayd string, known bool) *demoServer {
	t.Helper()
	s := &demoServer{t: t, relayd: relayd, home: t.TempDir(), data: t.TempDir(), account: "ana", port: "0", sshPort: "0", aliases: []string{"stripe-dev", "github-dev"}}
	shopPort := "0"
	if known {
		shopPort, s.port, s.sshPort = "3000", "8080", "2222"
	}
	key := filepath.Join(s.home, "id_ed25519")
	s.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ana@laptop", "-f", key)
	s.serve()
	s.run(relayd, "user", "add", s.account, "--data-dir", s.data, "--key", key+".pub")
	s.shopAt = s.open(shopPort)
	s.connect()
	return s
}

// connect opens the tunnels of the aliases.
func (s *demoServer) connect() {
	s.t.Helper()
	args := []string{
		"-N", "-F", "none", "-i", filepath.Join(s.home, "id_ed25519"), "-o", "IdentitiesOnly=yes", "-o", "UserKnownHostsFile=" + filepath.Join(s.home, "known_hosts"),
		"-o", "StrictHostKeyChecking=accept-new", "-o", "ExitOnForwardFailure=yes", "-p", s.sshPort, "127.0.0.1",
	}
	for _, alias := range s.aliases {
		args = append([]string{"-R", alias + ":80:" + s.shopAt}, args...)
	}
	s.start("ssh", args...)
	s.await("the tunnels", func() bool {
		return strings.Count(s.run(s.relayd, "tunnel", "list", "--json", "--data-dir", s.data), `"alias"`) == len(s.aliases)
	})
}

// serve starts relayd. If another program takes the chosen port before relayd can listen on it, serve tries
// another port.
func (s *demoServer) serve() {
	s.t.Helper()
	for range 3 {
		httpAt, sshAt := address(s.t, s.port), address(s.t, s.sshPort)
		_, s.port, _ = net.SplitHostPort(httpAt)
		_, s.sshPort, _ = net.SplitHostPort(sshAt)
		s.base = "http://localhost:" + s.port
		ended := s.start(s.relayd, "serve", "--data-dir", s.data, "--http-addr", httpAt, "--ssh-addr", sshAt, "--admin-addr", "off")
		ready := false
		s.await("relayd to be ready, or to end", func() bool {
			select {
			case <-ended:
				return true
			default:
			}
			res, err := http.Get(s.base + "/readyz")
			if err == nil {
				_ = res.Body.Close()
			}
			ready = err == nil && res.StatusCode == http.StatusOK
			return ready
		})
		if ready {
			return
		}
	}
	s.t.Fatal("relayd ends at once, three times")
}

// address returns a free loopback address, with the given port if that is free. The port "0" stands for any port, and
// the address is then reserved for the test.
func address(t *testing.T, port string) string {
	t.Helper()
	if port != "0" {
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	return relaytest.FreeAddr(t)
}

func (s *demoServer) env() []string { return append(os.Environ(), "HOME="+s.home, "SSH_AUTH_SOCK=") }

// run runs a program to its end and returns its output.
func (s *demoServer) run(name string, args ...string) string {
	s.t.Helper()
	c := exec.Command(name, args...)
	c.Env = s.env()
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = append(out, exit.Stderr...)
		}
		s.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// start starts a program, which runs until the method stop is called or the test ends; ended is closed when the
// program has ended.
func (s *demoServer) start(name string, args ...string) (ended <-chan struct{}) {
	s.t.Helper()
	c := exec.Command(name, args...)
	c.Env = s.env()
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	must(s.t, c.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Wait()
	}()
	stop := func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(patience):
			s.t.Errorf("%s does not end", name)
			_ = c.Process.Kill()
			<-done
		}
	}
	s.stops = append(s.stops, stop)
	s.t.Cleanup(func() {
		stop()
		if s.t.Failed() {
			s.t.Logf("%s said: %.4000s", name, said.String())
		}
	})
	return done
}

// stop ends the programs, in reverse order of their start.
func (s *demoServer) stop() {
	s.t.Helper()
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
	s.stops = nil
}

func (s *demoServer) await(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// open starts the shop and returns its address.
func (s *demoServer) open(port string) string {
	s.t.Helper()
	l, err := net.Listen("tcp", address(s.t, port))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	must(s.t, err)
	s.shop.file = filepath.Join(s.home, "orders.jsonl")
	server := &http.Server{Handler: &s.shop}
	go func() { _ = server.Serve(l) }()
	s.t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// demoApp is a small web shop that accepts webhooks and writes orders to its disk. Unless it is repaired, it
// fails for customers without a name.
type demoApp struct {
	file     string
	repaired atomic.Bool
	slow     atomic.Bool // the shop answers as slowly as real shops
	mu       sync.Mutex
	orders   int
}

type invoice struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		Object struct {
			Customer     string  `json:"customer"`
			CustomerName *string `json:"customer_name"`
			AmountPaid   int     `json:"amount_paid"`
		} `json:"object"`
	} `json:"data"`
}

func (s *demoApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(r.Body)
	if s.slow.Load() {
		time.Sleep(time.Duration(4+rand.ExpFloat64()*12) * time.Millisecond)
	}
	answer := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	defer func() {
		if bug := recover(); bug != nil {
			answer(http.StatusInternalServerError, map[string]any{"error": fmt.Sprint(bug), "handler": "invoicePaid"})
		}
	}()
	switch {
	case err != nil:
		answer(http.StatusBadRequest, map[string]any{"error": err.Error()})
	case r.Method == http.MethodGet:
		answer(http.StatusOK, map[string]any{"status": "ok"})
	case r.URL.Path == "/webhooks/stripe" && !signedByStripe(r, body), r.URL.Path == "/webhooks/github" && !signedByGitHub(r, body),
		r.URL.Path == "/webhooks/shopify" && !signedByShopify(r, body):
		answer(http.StatusUnauthorized, map[string]any{"error": "bad signature"})
	default:
		answer(http.StatusOK, s.take(body))
	}
}

// take processes one event, and returns the response. It writes an order for each paid invoice.
func (s *demoApp) take(body []byte) map[string]any {
	var e invoice
	if err := json.Unmarshal(body, &e); err != nil || e.Type != "invoice.paid" {
		return map[string]any{"received": true}
	}
	name := "customer " + e.Data.Object.Customer
	if !s.repaired.Load() || e.Data.Object.CustomerName != nil {
		// This is the bug: a customer may have no name.
		name = *e.Data.Object.CustomerName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders++
	order := map[string]any{"received": true, "order": 8840 + s.orders, "customer": name, "paid": e.Data.Object.AmountPaid}
	line, _ := json.Marshal(order)
	f, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.Write(append(line, '\n'))
		_ = f.Sync()
		_ = f.Close()
	}
	return order
}

func sum(secret string, text []byte) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(text)
	return m.Sum(nil)
}

func mac(secret string, text []byte) string { return hex.EncodeToString(sum(secret, text)) }

func signedByStripe(r *http.Request, body []byte) bool {
	stamp, signature, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Stripe-Signature"), "t="), ",v1=")
	return hmac.Equal([]byte(signature), []byte(mac(stripeSecret, []byte(stamp+"."+string(body)))))
}

func signedByGitHub(r *http.Request, body []byte) bool {
	return hmac.Equal([]byte(r.Header.Get("X-Hub-Signature-256")), []byte("sha256="+mac(githubSecret, body)))
}

func signedByShopify(r *http.Request, body []byte) bool {
	return r.Header.Get("X-Shopify-Hmac-Sha256") == base64.StdEncoding.EncodeToString(sum(shopifySecret, body))
}

// post sends a request to an alias, and returns the status. Without a body it is a GET.
func (s *demoServer) post(alias, path string, body []byte, header ...string) int {
	s.t.Helper()
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, "http://127.0.0.1:"+s.port+path, bytes.NewReader(body))
	must(s.t, err)
	req.Host = alias + ".localhost:" + s.port
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	must(s.t, err)
	_ = res.Body.Close()
	return res.StatusCode
}

// stripe sends an event with a signature of Stripe. customer is the name of the customer in it; "" = null.
func (s *demoServer) stripe(kind string, n int, customer string) int {
	s.t.Helper()
	name := "null"
	if customer != "" {
		name = fmt.Sprintf("%q", customer)
	}
	now := cmp.Or(s.sentAt, time.Now()).Unix()
	body := fmt.Appendf(nil, `{"id":"evt_1Q%02dKz2eZvKYlo2C","object":"event","api_version":"2026-08-27","created":%d,"type":%q,"livemode":false,`+
		`"data":{"object":{"id":"in_1Q%02dKz","object":"invoice","customer":"cus_R4n%02d","customer_name":%s,"currency":"eur","amount_paid":%d,"status":"paid",`+
		`"lines":{"data":[{"description":"Team plan","quantity":3}]}}},"pending_webhooks":1}`, n, now, kind, n, n, name, 1200+37*n)
	return s.post("stripe-dev", "/webhooks/stripe", body, "User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)", "Accept", "*/*; q=0.5, application/xml",
		"Content-Type", "application/json; charset=utf-8", "Stripe-Signature", fmt.Sprintf("t=%d,v1=%s", now, mac(stripeSecret, fmt.Appendf(nil, "%d.%s", now, body))))
}

// github sends an event with a signature of GitHub.
func (s *demoServer) github(kind, action string, n int) int {
	s.t.Helper()
	body := fmt.Appendf(nil, `{"action":%q,"number":%d,"repository":{"full_name":"ana/shop"},"sender":{"login":"ana"}}`, action, n)
	return s.post("github-dev", "/webhooks/github", body, "User-Agent", "GitHub-Hookshot/044aadd", "Content-Type", "application/json", "X-GitHub-Event", kind,
		"X-GitHub-Delivery", fmt.Sprintf("72d3162e-cc78-11e3-81ab-4c9367dc%04d", n), "X-Hub-Signature-256", "sha256="+mac(githubSecret, body))
}

// shopify sends an event with a signature of Shopify.
func (s *demoServer) shopify(topic string, n int) int {
	s.t.Helper()
	body := fmt.Appendf(nil, `{"id":%d,"total_price":"%d.00","currency":"EUR","customer":{"email":"ada@example.com"}}`, 450_789_469+n, 20+n)
	return s.post("shopify-dev", "/webhooks/shopify", body, "User-Agent", "Shopify-Captain-Hook", "Content-Type", "application/json", "X-Shopify-Topic", topic,
		"X-Shopify-Webhook-Id", fmt.Sprintf("b54557e4-bdd9-4b37-8a5f-bf7d7042%04d", n), "X-Shopify-Shop-Domain", "ana.myshopify.com",
		"X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(sum(shopifySecret, body)))
}
