package dashboard_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

// allPages is a fixture with typical data: alice has the alias stripe-dev with events, the offline alias
// github-dev with a queue, and the alias shop-staging without a tunnel. root is an admin.
type allPages struct {
	*fixture
	paid      relay.ID // an event that was answered with 500, then replayed twice
	single    relay.ID // an event with one attempt
	queued    relay.ID
	share     string // path of the page of a share whose visitors may see the event
	invite    string
	loginLink string
}

// waitingCode is the code of the waiting key in fakeEnrolments.
const waitingCode = "WXYZ-2345"

// fakeEnrolments holds one key that waits for approval.
type fakeEnrolments struct {
	accounts
	wrong int
	gone  bool
}

func (w *fakeEnrolments) Enrolment(_ context.Context, link string) (relay.Enrolment, error) {
	if w.gone || link != "k3yl1nk" {
		return relay.Enrolment{}, relay.ErrNotFound
	}
	return relay.Enrolment{
		Link: link, Fingerprint: "SHA256:J4NOu0pAyTQfXcmh9Lx6eQw2mTzZ5yq0sB1rC8dVhUE", KeyType: "ssh-ed25519",
		Remote: "203.0.113.77", Client: "SSH-2.0-OpenSSH_9.2p1", RequestedAt: time.Now(), ExpiresAt: time.Now().Add(2 * time.Minute),
	}, nil
}

func (w *fakeEnrolments) ApproveEnrolment(ctx context.Context, who relay.Actor, link, code string) error {
	switch {
	case w.gone || link != "k3yl1nk":
		return relay.ErrNotFound
	case code != waitingCode:
		if w.wrong++; w.wrong == 3 {
			w.gone = true
		}
		return relay.Errorf(relay.CodeValidationFailed, "this is not the code that the terminal shows")
	}
	w.gone = true
	return nil
}

func newAllPages(t *testing.T) *allPages {
	t.Helper()
	base, _ := url.Parse("http://localhost:8080")
	g := &allPages{fixture: newFixture(t, func(o *dashboard.Options) {
		o.Site.Base = *base
		o.Enrolments = &fakeEnrolments{}
		o.HostKey = "SHA256:0Q1kCq0nHkZqk5m0T8l7Wg3b2Yx9v6u5t4s3r2q1p0o"
	})}
	ctx, sys := t.Context(), relay.System()
	_, err := g.s.CreateAccount(ctx, sys, "root", true)
	must(t, err)
	must(t, g.s.RemoveAlias(ctx, sys, "hook"))
	for _, name := range []string{"stripe-dev", "github-dev", "shop-staging"} {
		g.alias, err = g.s.CreateAlias(ctx, sys, name, "alice")
		must(t, err)
	}
	g.login("alice")
	g.await("aliases known", func() bool { _, ok := g.d.Alias("shop-staging"); return ok })
	g.traffic()
	g.shares()
	return g
}

// traffic fills the aliases with typical requests of a payment provider and a code host.
func (g *allPages) traffic() {
	g.alias, _ = g.d.Alias("stripe-dev")
	g.online()
	g.answers(g.shop)
	for i, kind := range []string{
		"customer.created", "checkout.session.completed", "invoice.created", "invoice.paid", "charge.succeeded", "payment_intent.succeeded",
		"customer.subscription.updated", "invoice.payment_failed", "charge.refunded", "charge.succeeded", "payout.paid", "customer.updated",
	} {
		g.sendTo("stripe-dev", stripe(kind, i))
	}
	g.answers(func(head, body []byte) string {
		return httpAnswer("500 Internal Server Error", `{"error":{"type":"db_timeout","message":"orders: connection pool exhausted"},"received":true,"took_ms":41}`)
	})
	g.paid = g.sendTo("stripe-dev", stripe("invoice.paid", 12))
	g.answers(g.shop)
	g.single = g.sendTo("stripe-dev", stripe("checkout.session.completed", 13))
	g.sendTo("stripe-dev", "GET /health?probe=1 HTTP/1.1\r\nHost: stripe-dev.localhost\r\nUser-Agent: curl/8.5.0\r\n\r\n")
	g.replay(g.paid.String())
	g.replay(g.paid.String())
	g.submit("/events/"+g.paid.String()+"/mark", url.Values{"pinned": {"on"}, "label": {"bug-17"}, "note": {"The customer has no name: see the log of the shop at 16:20."}}, 200)
	g.submit("/aliases/stripe-dev/searches", url.Values{"name": {"failed invoices"}, "words": {"status:error type:invoice.*"}}, 200)

	github, _ := g.d.Alias("github-dev")
	stripe := g.alias
	g.alias = github
	g.online()
	g.sendTo("github-dev", forge("push", "main"))
	g.offline()
	g.sendTo("github-dev", forge("pull_request", "opened"))
	g.queued = g.sendTo("github-dev", forge("issues", "opened"))
	g.alias = stripe
}

func (g *allPages) shares() {
	page := g.submit("/events/"+g.paid.String()+"/shares", url.Values{"view": {"on"}, "expires": {"7d"}}, 200)
	g.share = regexp.MustCompile(`/s/[A-Za-z0-9_-]+`).FindString(page)
	var err error
	g.invite, err = g.s.CreateInvite(context.Background(), relay.System(), "alice", time.Hour)
	must(g.t, err)
	g.loginLink, err = g.s.CreateLoginLink(context.Background(), relay.System(), "alice", time.Hour)
	must(g.t, err)
}

// pages returns the paths of all pages that alice can open, and of those that only admins can open.
func (g *allPages) pages() (own, admin []string) {
	paid := "/events/" + g.paid.String()
	own = []string{
		"/", "/aliases/stripe-dev", "/aliases/stripe-dev?q=invoice&status=5xx", "/aliases/stripe-dev?path=/none", "/aliases/stripe-dev?status=abc",
		"/aliases/github-dev", "/aliases/shop-staging", "/aliases/github-dev/replay-queued", "/aliases/stripe-dev/settings",
		paid, paid + "?diff=1,2", paid + "?body=hex&response=raw", paid + "/delete", "/aliases/stripe-dev?pinned=true", "/events/" + g.queued.String(),
		paid + "?attempts=all", paid + "/share?view=on&expires=7d", "/diff?left=" + g.paid.String(), "/diff?part=request&left=" + g.single.String() + "&right=" + g.paid.String(),
		"/aliases/stripe-dev?tick=1", "/aliases/stripe-dev/replay?id=" + g.paid.String() + "&id=" + g.single.String(),
		"/aliases/stripe-dev/send", "/aliases/stripe-dev/send?from=" + g.paid.String(), "/aliases/stripe-dev/send?sample=github/push",
		"/account", "/account/audit", "/link/k3yl1nk", "/link/none", g.share, "/invite/" + g.invite, "/login/" + g.loginLink, "/nothing",
	}
	return own, []string{"/admin", "/admin/audit", "/admin/audit?who=user:alice&what=share"}
}

// shop answers requests as a web shop does.
func (g *allPages) shop(head, body []byte) string {
	if strings.HasPrefix(string(head), "GET") {
		return httpAnswer("200 OK", `{"status":"ok"}`)
	}
	return httpAnswer("200 OK", `{"received":true,"order":"ord_8842","took_ms":7}`)
}

func httpAnswer(status, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json; charset=utf-8\r\nX-Request-Id: req_7f3a91\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

func stripe(kind string, n int) string {
	body := fmt.Sprintf(`{"id":"evt_1QK%02dz2eZvKYlo2C","object":"event","api_version":"2026-08-27","created":%d,"type":%q,"livemode":false,`+
		`"data":{"object":{"id":"in_1QK%02d","object":"invoice","customer":"cus_R4n8","currency":"eur","amount_paid":%d,"status":"paid",`+
		`"customer_email":"ana@example.com","lines":{"data":[{"description":"Team plan","quantity":3}]}}},"pending_webhooks":1}`,
		n, time.Now().Unix(), kind, n, 1200+37*n)
	now := time.Now().Unix()
	mac := hmac.New(sha256.New, []byte("whsec_demo"))
	fmt.Fprintf(mac, "%d.%s", now, body)
	return fmt.Sprintf("POST /webhooks/stripe HTTP/1.1\r\nHost: stripe-dev.localhost\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n"+
		"Accept: */*; q=0.5, application/xml\r\nCache-Control: no-cache\r\nContent-Type: application/json; charset=utf-8\r\n"+
		"Stripe-Signature: t=%d,v1=%s\r\nContent-Length: %d\r\n\r\n%s", now, hex.EncodeToString(mac.Sum(nil)), len(body), body)
}

func forge(kind, action string) string {
	// The kinds in these tests differ in length, so the length makes a delivery id of its own for each kind.
	delivery := fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012x", len(kind))
	body := fmt.Sprintf(`{"action":%q,"repository":{"full_name":"ana/shop"},"sender":{"login":"ana"}}`, action)
	return fmt.Sprintf("POST /webhooks/github HTTP/1.1\r\nHost: github-dev.localhost\r\nUser-Agent: GitHub-Hookshot/044aadd\r\nX-GitHub-Event: %s\r\n"+
		"X-GitHub-Delivery: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", kind, delivery, len(body), body)
}
