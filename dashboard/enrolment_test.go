package dashboard_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

func TestApproveAKey(t *testing.T) {
	t.Parallel()
	w := &fakeEnrolments{}
	r := newFixture(t, func(o *dashboard.Options) { o.Enrolments = w })
	page := r.get("/link/k3yl1nk", 200)
	contains(t, "link page", page, "SHA256:J4NOu0pA", "ssh-ed25519", "203.0.113.77", "OpenSSH_9.2p1", "gives this key your account alice",
		`name="code"`, ">Approve</button>")
	if count(page, "<main", `<input`) != 1 || count(page, "<main", "<button") != 1 {
		t.Error("more than one field or button")
	}
	page = r.submit("/link/k3yl1nk", url.Values{"code": {"nope"}}, 422)
	contains(t, "wrong code", page, "not the code that the terminal shows", `aria-invalid="true"`)
	if count(page, "<main", `value="nope"`) != 0 {
		t.Error("the wrong code is kept in the field")
	}
	contains(t, "no code", r.submit("/link/k3yl1nk", nil, 422), "type the code")
	page = r.submit("/link/k3yl1nk", url.Values{"code": {" " + waitingCode + " "}}, 200)
	contains(t, "approved", page, "The key was approved", "ssh -N -R hook:80:localhost:3000")
	contains(t, "again", r.get("/link/k3yl1nk", 404), "no key is waiting for approval here", "ssh link@")
}

func TestTooManyWrongCodesEndAnEnrolment(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *dashboard.Options) { o.Enrolments = &fakeEnrolments{} })
	r.submit("/link/k3yl1nk", url.Values{"code": {"a"}}, 422)
	r.submit("/link/k3yl1nk", url.Values{"code": {"b"}}, 422)
	r.submit("/link/k3yl1nk", url.Values{"code": {"c"}}, 404)
	r.submit("/link/k3yl1nk", url.Values{"code": {waitingCode}}, 404)
}

func TestStrangersComeBackToTheLink(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *dashboard.Options) { o.Enrolments = &fakeEnrolments{} })
	link, err := r.s.CreateLoginLink(context.Background(), relay.System(), "alice", time.Minute)
	must(t, err)
	jar, err := cookiejar.New(nil)
	must(t, err)
	r.client = &http.Client{Jar: jar}
	known, unknown := r.get("/link/k3yl1nk", 401), r.get("/link/unknown", 401)
	contains(t, "stranger", known, "localhost login", "two minutes", `href="/link/k3yl1nk"`)
	if count(known, "<main", "SHA256:") != 0 || len(known) != len(unknown)+2*len("k3yl1nk")-2*len("unknown") && len(known) != len(unknown) {
		t.Error("strangers are told whether a key waits")
	}
	r.submit("/link/k3yl1nk", url.Values{"code": {waitingCode}}, 401)
	r.get("/link/k3yl1nk", 401)
	contains(t, "after login", r.submit("/login/"+link, nil, 200), "Approve this SSH key?")
	r.do("POST", "/link/k3yl1nk", url.Values{"code": {waitingCode}}, http.Header{"Sec-Fetch-Site": {"same-site"}}, 403)
}

func TestNoEnrolmentsNoPage(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.get("/link/k3yl1nk", 404)
}
