package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"relay"
	"relay/relaytest"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	spend := func(name string, account int64) error {
		// Each call makes a new value of type quota, so that the names that were counted before can only come
		// from the file.
		return (&quota{&certmagic.FileStorage{Path: dir}}).use(t.Context(), name, account, now, false)
	}
	for i := range quotaPerAccount {
		if err := spend(fmt.Sprintf("a%d.test", i), 1); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	var spent *quotaError
	if err := spend("more.test", 1); !errors.As(err, &spent) || spent.wait != quotaPeriod-quotaPerAccount*time.Minute {
		t.Errorf("one name more: %v, wait %v", err, spent)
	}
	if err := spend("a3.test", 1); err != nil {
		t.Errorf("a name that was counted: %v", err)
	}
	for i := range quotaTotal - quotaPerAccount {
		// Each further account uses two names.
		if err := spend(fmt.Sprintf("b%d.test", i), int64(2+i/2)); err != nil {
			t.Errorf("another account: %v", err)
		}
	}
	if err := spend("last.test", 99); !errors.As(err, &spent) {
		t.Errorf("more than all may have: %v", err)
	}
	now = now.Add(quotaPeriod - quotaPerAccount/2*time.Minute)
	if err := spend("more.test", 1); err != nil {
		t.Errorf("a week after the first half: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, quotaFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// TestBudgetAhead: prefetches, which are orders for names that no handshake has asked for, may use half of the
// quota of an account, and half of the whole quota. Beyond that, a prefetch of a name that was counted before is
// allowed, and so is a name for which a handshake waits.
func TestBudgetAhead(t *testing.T) {
	t.Parallel()
	b, now := &quota{&certmagic.FileStorage{Path: t.TempDir()}}, time.Now()
	for i := range quotaTotal / 2 {
		// The first account uses half of its quota, and each other account uses one name.
		if err := b.use(t.Context(), fmt.Sprintf("a%d.test", i), int64(max(0, i-quotaPerAccount/2+1)), now, true); err != nil {
			t.Fatal(err)
		}
		var spent *quotaError
		if i == quotaPerAccount/2-1 {
			if err := b.use(t.Context(), "more.test", 0, now, true); !errors.As(err, &spent) || !spent.prefetch {
				t.Errorf("more than half of what an account may have: %v", err)
			}
		}
	}
	var spent *quotaError
	if err := b.use(t.Context(), "last.test", 99, now, true); !errors.As(err, &spent) || !spent.prefetch {
		t.Errorf("more than half of all: %v", err)
	}
	if err := b.use(t.Context(), "a0.test", 0, now, true); err != nil {
		t.Errorf("a name that was counted: %v", err)
	}
	if err := b.use(t.Context(), "more.test", 0, now, false); err != nil {
		t.Errorf("a name that somebody asks for: %v", err)
	}
}

func TestPostpone(t *testing.T) {
	t.Parallel()
	denied := fmt.Errorf("order: %w", acme.Problem{Type: acme.ProblemTypeUnauthorized})
	o := &issuance{}
	for i, want := range append(rejectedBackoff, time.Hour, time.Hour) {
		got, byItself := o.backOff(denied)
		if got != want || byItself != (i < len(rejectedBackoff)) {
			t.Errorf("denial %d: %v, by itself %v, want %v", i+1, got, byItself, want)
		}
	}
	o = &issuance{}
	for i, want := range append(unreachableBackoff, time.Minute) {
		if got, byItself := o.backOff(errors.New("connection refused")); got != want || !byItself {
			t.Errorf("failure %d: %v, by itself %v, want %v", i+1, got, byItself, want)
		}
	}
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{&quotaError{wait: 48 * time.Hour}, time.Hour},
		{&quotaError{wait: time.Minute}, time.Minute},
		{acme.Problem{Type: acme.ProblemTypeRateLimited}, time.Hour},
		{acme.Problem{Type: acme.ProblemTypeBadNonce}, time.Second},
		{acme.Problem{Type: acme.ProblemTypeServerInternal}, time.Second},
	} {
		if got, _ := (&issuance{}).backOff(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// newTestACME returns an ACME whose CA cannot be reached. Only labels that begin with good may have
// certificates.
func newTestACME(t *testing.T) *ACME {
	t.Helper()
	a, err := NewACME(ACMEOptions{
		Site: relay.Site{Base: url.URL{Scheme: "https", Host: "relay.test"}, AliasDomain: "hooks.test"},
		Alias: func(label string) (int64, bool) {
			return 1, strings.HasPrefix(label, "good")
		},
		Dir: filepath.Join(t.TempDir(), "certificates"), CA: "https://127.0.0.1:1/directory",
		HTTPAddr: "127.0.0.1:1", TLSAddr: "127.0.0.1:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

// TestLocksOfAKilledProcess: locks that a killed process left can be taken, although one has a time in the
// future and the other is damaged.
func TestLocksOfAKilledProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "certificates")
	ahead := `{"created":"2999-01-01T00:00:00Z","updated":"2999-01-01T00:00:00Z"}`
	locks := filepath.Join(dir, "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ahead": ahead, "damaged": "\x00\x00"} {
		if err := os.WriteFile(filepath.Join(locks, name+".lock"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := NewACME(ACMEOptions{Dir: dir, HTTPAddr: "127.0.0.1:1", TLSAddr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"ahead", "damaged"} {
		if err := a.storage.Lock(ctx, name); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := a.storage.Unlock(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

// TestNamesThatAreNotServed: names that may not have a certificate get none, and no entry in issuances.
func TestNamesThatAreNotServed(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	for i := range 1000 {
		for _, name := range []string{fmt.Sprintf("bad%d.hooks.test", i), fmt.Sprintf("good%d.a.hooks.test", i), "elsewhere.test"} {
			if cert, err := a.Certificate(&tls.ClientHelloInfo{ServerName: name}); cert != nil || err != nil {
				t.Fatalf("%s: %v, %v", name, cert, err)
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.issuances) > 0 {
		t.Errorf("%d orders", len(a.issuances))
	}
}

// TestFailedOrderIsRemembered: request refuses another order of a name during the pause after a failure.
func TestFailedOrderIsRemembered(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	ended, err := a.request("good.hooks.test", 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.request("good.hooks.test", 1, false); err == nil && again != ended {
		t.Error("two tries at the same time")
	}
	a.mu.Lock()
	o := a.issuances["good.hooks.test"]
	a.mu.Unlock()
	// Stop ends the running order.
	a.Stop()
	<-ended
	if o.err == nil {
		t.Error("a certificate came from nowhere")
	}
	a.mu.Lock()
	a.stopped, o.notBefore = false, time.Now().Add(time.Hour)
	a.mu.Unlock()
	if _, err := a.request("good.hooks.test", 1, false); err == nil || !strings.Contains(err.Error(), "is tried again in ") {
		t.Errorf("right after a failure: %v", err)
	}
}

// TestOrderBeforeTheFirstHandshake: Online orders the certificate of an alias, and orders nothing for names
// that may have none.
func TestOrderBeforeTheFirstHandshake(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	for _, label := range []string{"bad", "good.a", ""} {
		a.Online(label)
	}
	a.mu.Lock()
	if len(a.issuances) > 0 {
		t.Errorf("%d orders for names that may have none", len(a.issuances))
	}
	a.mu.Unlock()
	a.Online("good")
	failed := func() (err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if o := a.issuances["good.hooks.test"]; o != nil {
			err = o.err
		}
		return err
	}
	relaytest.Until(t, 10*time.Second, "the failure of the order", func() bool { return failed() != nil })
}

// TestOrderAheadWithoutBudget: if half of an account's quota is used, a prefetch orders nothing, and is not
// remembered as a failed order. So a handshake can still order a certificate for the same name.
func TestOrderAheadWithoutBudget(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	for i := range quotaPerAccount / 2 {
		if err := a.quota.use(t.Context(), fmt.Sprintf("a%d.hooks.test", i), 1, time.Now(), false); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := a.request("good.hooks.test", 1, true)
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	a.mu.Lock()
	n := len(a.issuances)
	a.mu.Unlock()
	if n > 0 {
		t.Error("an order ahead that found no budget is remembered as a failure")
	}
	if ended, err = a.request("good.hooks.test", 1, false); err != nil {
		t.Fatal(err)
	}
	<-ended
	if list, err := a.quota.read(t.Context(), time.Now()); err != nil || len(list) != quotaPerAccount/2+1 {
		t.Errorf("%d names are counted, %v", len(list), err)
	}
}

// TestHandshakesComeBeforePrefetches: a prefetch that waits for a slot runs at once when a handshake asks for
// its name.
func TestHandshakesComeBeforePrefetches(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	// This takes all slots for prefetches.
	for range maxPrefetches {
		a.prefetchSlots <- struct{}{}
	}
	ended, err := a.request("good.hooks.test", 1, true)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Error("the order did not wait for its turn")
	default:
	}
	same, err := a.request("good.hooks.test", 1, false)
	if err != nil || same != ended {
		t.Fatalf("another try: %v", err)
	}
	<-ended
	for range maxPrefetches {
		<-a.prefetchSlots
	}
}

// TestOrdersAreBounded: dropFailures makes space if maxIssuances failures are remembered.
func TestOrdersAreBounded(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	a.mu.Lock()
	for i := range maxIssuances {
		a.issuances[fmt.Sprintf("good%d.hooks.test", i)] = &issuance{notBefore: time.Now().Add(time.Hour), err: errors.New("no")}
	}
	a.dropFailures()
	n := len(a.issuances)
	a.mu.Unlock()
	if n >= maxIssuances {
		t.Errorf("%d orders are remembered", n)
	}
}

// TestUnknownNameInTLS: a handshake for a name that may not have a certificate fails with the alert
// unrecognized_name. So does one with the protocol acme-tls/1 while no challenge is pending.
func TestUnknownNameInTLS(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", a.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	for _, c := range []*tls.Config{
		{ServerName: "bad.hooks.test"}, {ServerName: "elsewhere.test"}, {ServerName: "good.hooks.test", NextProtos: []string{acmez.ACMETLS1Protocol}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", ln.Addr().String())
		cancel()
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s %v: %v", c.ServerName, c.NextProtos, err)
		}
	}
}
