package server

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// retryDefault is the Retry-After of a 503 whose error has no retry time.
const retryDefault = 5 * time.Second

// offlineRetry is the Retry-After of an offline answer with an error status. The value is a guess,
// because the tunnel may return at any time.
const offlineRetry = 60 * time.Second

// allowed is the Allow line of a 405. The list is not complete: an alias accepts every method except CONNECT.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// answerHeadSize is the initial buffer size for the head of a relay-made answer; most heads fit.
const answerHeadSize = 384

// answerStatus returns the status of a relay-made answer.
func answerStatus(a *relay.Answer) int {
	switch {
	case a.Error != nil:
		return relay.Status(a.Error.Code)
	case a.Status < 200 || a.Status > 599:
		return relay.DefaultSettings().OfflineStatus
	}
	return a.Status
}

// encodeAnswer returns the bytes of a relay-made answer. If another package has made the bytes (a.Own), it
// returns them unchanged. Otherwise it encodes an error as application/problem+json, or the offline answer as
// JSON; for a HEAD request it leaves out the body.
func encodeAnswer(a *relay.Answer, requestID string, isHead, keep bool) []byte {
	if a.Error == nil && a.Own != nil {
		return a.Own
	}
	status, body := answerStatus(a), []byte(nil)
	if a.Error != nil {
		_, body = problem(a.Error, requestID)
	} else {
		body = []byte(`{"event":"` + a.Event.String() + `","state":"queued"}`)
	}
	b := make([]byte, 0, answerHeadSize+len(body))
	b = fmt.Appendf(b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	// Content-Length and Content-Type are sent only with a status that allows them (RFC 9110, sections 8.6 and
	// 15.3.6).
	if status == http.StatusResetContent {
		b = append(b, "Content-Length: 0\r\n"...)
	} else if hasBody(status) {
		kind := "application/json"
		if a.Error != nil {
			kind = "application/problem+json"
		}
		b = fmt.Appendf(b, "Content-Type: %s\r\nContent-Length: %d\r\n", kind, len(body))
	}
	for _, l := range answerLines(a, status) {
		b = fmt.Appendf(b, "%s: %s\r\n", l[0], l[1])
	}
	if !keep {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if isHead || !hasBody(status) {
		return b
	}
	return append(b, body...)
}

// hasBody reports whether a response of the status may carry content.
func hasBody(status int) bool {
	switch status {
	case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
		return false
	}
	return status >= 200
}

// answerLines returns the header lines Relay-Error, Relay-Event, Retry-After and Allow that apply to
// an answer.
func answerLines(a *relay.Answer, status int) [][2]string {
	lines := make([][2]string, 0, 4)
	retry := time.Duration(0)
	if a.Error != nil {
		lines = append(lines, [2]string{"Relay-Error", a.Error.Code})
		retry = a.Error.RetryAfter
		if retry <= 0 && status == http.StatusServiceUnavailable {
			retry = retryDefault
		}
	} else if status >= 500 {
		retry = offlineRetry
	}
	if !a.Event.IsZero() {
		lines = append(lines, [2]string{"Relay-Event", a.Event.String()})
	}
	if retry > 0 {
		seconds := (retry + time.Second - 1) / time.Second
		lines = append(lines, [2]string{"Retry-After", strconv.FormatInt(int64(seconds), 10)})
	}
	if status == http.StatusMethodNotAllowed && a.Error != nil {
		lines = append(lines, [2]string{"Allow", allowed})
	}
	return lines
}

// problem returns status and body of an error.
func problem(e *relay.Error, requestID string) (int, []byte) {
	p := record.ProblemOf(e, requestID)
	// Strings and numbers can always be encoded.
	body, _ := json.Marshal(p)
	return p.Status, body
}

// requestID returns a random id for an answer, by which its log line can be found.
func requestID() string {
	return "req_" + strings.ToLower(rand.Text()[:16])
}

// Errors that are the same for every request.
var (
	errHostUnknown = relay.Errorf(relay.CodeHostUnknown, "this host is neither the base host nor an alias; check the URL")
	errMisdirected = relay.Errorf(relay.CodeHostUnknown, "the Host line names another host than the TLS connection was made for; use a connection of its own")
	errStarting    = &relay.Error{Code: relay.CodeStoreUnavailable, Detail: "this relay is not serving yet; send the request again", RetryAfter: 2 * time.Second}
	errStopping    = &relay.Error{Code: relay.CodeStopping, Detail: "the relay is stopping; send the request again in a moment", RetryAfter: retryDefault}
	errOverloaded  = &relay.Error{Code: relay.CodeOverloaded, Detail: "the relay has reached its limit of connections; send the request again in a moment, and reuse connections", RetryAfter: retryDefault}
)

// writeProblem writes an error on the base site.
func writeProblem(w http.ResponseWriter, e *relay.Error) {
	id := requestID()
	status, body := problem(e, id)
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	for _, l := range answerLines(&relay.Answer{Error: e}, status) {
		h.Set(l[0], l[1])
	}
	h.Set("Connection", "close")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
