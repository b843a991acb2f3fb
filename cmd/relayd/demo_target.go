package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// demoTarget is the local server of the demo: it checks a signature in Stripe's
// form and says what it saw.
type demoTarget struct {
	addr   string
	secret []byte
	server *http.Server

	mu  sync.Mutex
	got []string
}

func newDemoTarget() (*demoTarget, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &demoTarget{addr: ln.Addr().String(), secret: []byte("whsec_" + rand.Text())}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = t.server.Serve(ln) }()
	return t, nil
}

func (t *demoTarget) close() { _ = t.server.Close() }

// sign makes the value of a Stripe-Signature header.
func (t *demoTarget) sign(body []byte, at time.Time) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return "t=" + stamp + ",v1=" + t.mac(stamp, body)
}

func (t *demoTarget) mac(stamp string, body []byte) string {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte(stamp + "."))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// verify tells whether a signature is right and at most five minutes old.
func (t *demoTarget) verify(signature string, body []byte) bool {
	stamp, sum, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	at, err := strconv.ParseInt(stamp, 10, 64)
	fresh := err == nil && time.Since(time.Unix(at, 0)) < 5*time.Minute
	return fresh && hmac.Equal([]byte(sum), []byte(t.mac(stamp, body)))
}

// ServeHTTP answers a webhook.
func (t *demoTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	verdict, status := "valid", http.StatusOK
	if !t.verify(r.Header.Get("Stripe-Signature"), body) {
		verdict, status = "invalid", http.StatusBadRequest
	}
	sum := sha256.Sum256(body)
	t.mu.Lock()
	t.got = append(t.got, fmt.Sprintf("%s %s, body sha256 %x…, signature %s", r.Method, r.URL, sum[:6], verdict))
	t.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"received":true,"signature":%q}`+"\n", verdict)
}

// seen lists what came, one line for each request.
func (t *demoTarget) seen() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.got...)
}
