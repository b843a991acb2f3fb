package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestKeysOfBodiesHaveOneSpelling: a key in another letter case is refused, although encoding/json would
// accept it. null is accepted only where the schema allows it.
func TestKeysOfBodiesHaveOneSpelling(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	shares := "POST /api/v1/events/" + h.event("shop", nil).String() + "/shares "
	for line, want := range map[string]string{
		`POST /api/v1/aliases {"Name":"new"}`:                "name",
		`POST /api/v1/aliases {"name":"new","NAME":"other"}`: "body.NAME",
		`POST /api/v1/aliases {"name":null}`:                 "body.name",
		`POST /api/v1/tokens {"ſcopes":["events:read"]}`:     "body.ſcopes", // ſ folds to s
		`PATCH /api/v1/aliases/shop {"Paused":true}`:         "Paused",
		`PATCH /api/v1/aliases/shop {"paused":null}`:         "paused",
		`POST /api/v1/aliases/shop/transfer {"User":"bob"}`:  "body",
		shares + `{"View":true}`:                             "body.View",
		`POST /api/v1/keys {"Key":"x"}`:                      "body",
	} {
		if p := h.line(h.asAlice, line).code(422, "validation-failed").problem(); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: said %q, want %q", line, p.Detail, want)
		}
	}
	for _, line := range []string{
		`POST /api/v1/tokens {"name":"","scopes":null,"alias":null,"expiresIn":null}`, // only the name may not be null
		shares + `{"expiresIn":null,"view":true}`, shares + `{}`, `PATCH /api/v1/aliases/shop {"retention":null}`,
	} {
		if a := h.line(h.asAlice, line); a.status >= 300 {
			t.Errorf("%s: %d %s", line, a.status, a.body)
		}
	}
}

// TestBodiesThatAreNoUTF8: a body that is not UTF-8 is refused.
func TestBodiesThatAreNoUTF8(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, line := range []string{"POST /api/v1/tokens {\"name\":\"caf\xe9\"}", "POST /api/v1/aliases {\"name\":\"new\",\"\xff\":1}"} {
		h.line(h.asAlice, line).code(400, "bad-request")
	}
	h.line(h.asAlice, `POST /api/v1/tokens {"name":"café"}`).want(201)
}

// TestNumbersBeyondAllBounds: a number too large for a float64 is valid JSON, so it gets 422 and not 400.
func TestNumbersBeyondAllBounds(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil).String()
	for _, line := range []string{
		`POST /api/v1/aliases {"name":1e400}`, `POST /api/v1/aliases {"name":"new","more":-1e400}`, `POST /api/v1/aliases 1e400`,
		`PATCH /api/v1/aliases/shop {"offlineStatus":1e400}`, `PATCH /api/v1/aliases/shop {"retention":1e400}`, `PATCH /api/v1/aliases/shop {"paused":1e400}`,
		`POST /api/v1/tokens {"expiresIn":1e400}`, `POST /api/v1/tokens {"scopes":1e400}`, `POST /api/v1/tokens {"alias":1e400}`,
		`POST /api/v1/events/` + id + `/shares {"expiresIn":1e400}`, `POST /api/v1/events/` + id + `/shares 1e400`,
	} {
		h.line(h.asAlice, line).code(422, "validation-failed")
	}
	h.line(h.asAlice, `POST /api/v1/aliases {"name":1e400`).code(400, "bad-request")
}

// TestMediaTypesInAnySpelling: media types are compared without letter case, outer spaces and parameters.
func TestMediaTypesInAnySpelling(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for media, status := range map[string]int{
		"application/json ; charset=utf-8": 200, " Application/JSON;Charset=UTF-8": 200, "application/json;": 200, "application/json; charset": 200,
		"application/merge-patch+json": 200, "": 200, "text/plain": 415, "application/jsonp": 415, "application/json, text/plain": 415,
	} {
		r := h.request("PATCH", h.asAlice, "/api/v1/aliases/shop", `{"paused":false}`)
		r.Header.Set("Content-Type", media)
		if a := h.do(r); a.status != status {
			t.Errorf("%q: %d %s", media, a.status, a.body)
		}
	}
}

// TestKeysWithoutAValueInTheQuery: a query key without a value counts as empty. For wait this is an error.
func TestKeysWithoutAValueInTheQuery(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil).String()
	for _, query := range []string{"q", "alias", "method", "limit", "q&alias=shop", "status=&state=&limit=&cursor=&since="} {
		if got := h.ids(query); len(got) != 1 || got[0] != id {
			t.Errorf("?%s: %v", query, got)
		}
	}
	h.post(h.asAlice, "/api/v1/events/"+id+"/replay?wait=", "").code(422, "validation-failed")
}

// TestManyWrongKeysMakeNoLargeAnswer: for a body with 20,000 unknown keys, the answer lists only 50 of them.
// Its detail names the first and the number of all others.
func TestManyWrongKeysMakeNoLargeAnswer(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var b strings.Builder
	b.WriteString(`{"name":"new"`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	b.WriteString(`}`)
	p := h.post(h.asAlice, "/api/v1/aliases", b.String()).code(422, "validation-failed").problem()
	if len(p.Errors) != 50 || !strings.Contains(p.Detail, "(and 19999 more; see errors)") {
		t.Errorf("%d errors: %s", len(p.Errors), p.Detail)
	}
}

// TestBodiesThatBreakOff: an incomplete body gets 400, not 500, because the client has made the mistake.
func TestBodiesThatBreakOff(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	front := httptest.NewServer(h.handler)
	t.Cleanup(front.Close)
	for _, body := range []string{"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "Content-Length: 50\r\n\r\n{\"name\":"} {
		c, err := net.Dial("tcp", front.Listener.Addr().String())
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(c, "POST /api/v1/aliases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer "+h.asAlice+"\r\n"+body)
		must(t, err)
		must(t, c.(*net.TCPConn).CloseWrite())
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		text, err := io.ReadAll(res.Body)
		must(t, err)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `"bad-request"`) {
			t.Errorf("%q: %d %s", body, res.StatusCode, text)
		}
		must(t, c.Close())
	}
	h.get(h.asAlice, "/api/v1/aliases/new").want(404)
}
