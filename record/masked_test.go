package record_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/record"
	"relay/signature"
)

// shownAsIs lists the texts of a record that Mask does not change: words and ids of the relay, texts of the
// owner, and addresses. None of these texts comes from a caller or a local server.
var shownAsIs = []string{
	".Summary.ID", ".Summary.Alias", ".Summary.State", ".Summary.Error.Code", ".Summary.Method", ".Summary.HTTPVersion", ".Summary.Host",
	".Summary.RemoteAddr", ".Summary.ReplayBlocker", ".Summary.Provider.Name", ".Summary.Signature.Provider", ".Summary.Signature.Verdict",
	".Summary.Signature.Reason", ".Summary.Signature.SecretID", ".Summary.Handshake", ".Summary.Warnings[].Code", ".Summary.Label", ".Summary.Note",
	".Summary.Origin", ".Summary.Sent.Actor", ".Summary.Sent.MadeFrom", ".Summary.Sent.Changes[]", ".Summary.Sent.SignedBy",
	".Request.Framing", ".Request.Body.SHA256", ".Request.Body.Encoding", ".Request.Body.State",
	".Response.HTTPVersion", ".Response.Framing", ".Response.State", ".Response.Body.SHA256", ".Response.Body.Encoding", ".Response.Body.State",
	".Attempts[].Kind", ".Attempts[].State", ".Attempts[].Actor", ".Attempts[].Via", ".Attempts[].Client", ".Attempts[].Error.Code",
	".Attempts[].Connection", ".Attempts[].Node", ".Attempts[].Response.HTTPVersion", ".Attempts[].Response.Framing", ".Attempts[].Response.State",
	".Attempts[].Response.Body.SHA256", ".Attempts[].Response.Body.Encoding", ".Attempts[].Response.Body.State",
	".Request.Headers[][]", ".Request.Trailers[][]", // names of lines; TestValuesOfLinesAreMasked checks the values
	".Response.Headers[][]", ".Response.Trailers[][]", ".Response.Interim[].Headers[][]",
	".Attempts[].Response.Headers[][]", ".Attempts[].Response.Trailers[][]", ".Attempts[].Response.Interim[].Headers[][]",
}

// texts calls f for each string of a value that can be set, with its path. It creates nil pointers and
// fills empty slices on the way.
func texts(v reflect.Value, path string, f func(path string, text reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		texts(v.Elem(), path, f)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				texts(v.Field(i), path+"."+field.Name, f)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			texts(v.Index(i), path+"[]", f)
		}
	case reflect.String:
		f(path, v)
	}
}

// TestEveryTextIsMasked sets each text of a record to a value that is secret elsewhere in the record. Mask
// must hide the value in every text that is not listed in shownAsIs.
func TestEveryTextIsMasked(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2hunter2"
	fill := func() *record.Event {
		e := &record.Event{}
		texts(reflect.ValueOf(e), "", func(string, reflect.Value) {})
		line := []record.Header{{"X-Note", "a"}, {"X-Other", "b"}}
		for _, m := range []*[]record.Header{
			&e.Request.Trailers, &e.Response.Headers, &e.Response.Trailers, &e.Attempts[0].Response.Headers, &e.Attempts[0].Response.Trailers,
			&e.Response.Interim[0].Headers, &e.Attempts[0].Response.Interim[0].Headers,
		} {
			*m = slices.Clone(line)
		}
		e.Request.Headers = []record.Header{{"Authorization", "Bearer " + secret}, {"X-Note", "a"}}
		for _, b := range []*record.Body{e.Request.Body, e.Response.Body, e.Attempts[0].Response.Body} {
			b.Encoding, b.State, b.Data = record.EncodingUTF8, "complete", "hello"
		}
		e.Path, e.URL, e.Method, e.HTTPVersion = "/", "https://shop.localhost/", "POST", "HTTP/1.1"
		return e
	}
	var paths []string
	texts(reflect.ValueOf(fill()), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	for n, path := range paths {
		e, i := fill(), 0
		texts(reflect.ValueOf(e), "", func(_ string, text reflect.Value) {
			if i == n {
				text.SetString("it is " + secret + ", you know")
			}
			i++
		})
		if slices.Contains(shownAsIs, path) && !strings.HasSuffix(path, "[][]") {
			continue
		}
		must(t, record.Mask(t.Context(), e))
		shown, err := json.Marshal(e)
		must(t, err)
		if strings.Contains(string(shown), secret) && !slices.Contains(shownAsIs, path) {
			t.Errorf("%s is neither masked nor named as shown as it is", path)
		}
	}
	for _, path := range shownAsIs {
		if !slices.Contains(paths, path) {
			t.Errorf("there is no %s any more", path)
		}
	}
}

// TestEveryTextOfAReportIsMasked: MaskReport hides a secret of the event in every text of a report that is
// not listed in shown.
func TestEveryTextOfAReportIsMasked(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2hunter2"
	shown := []string{".Verdict.Verdict", ".Verdict.Reason", ".Verdict.SecretID", ".Signature.Header", ".Signed.Template", ".Tried[]", ".Checks[].Name"}
	fill := func() *signature.Report {
		r := &signature.Report{}
		texts(reflect.ValueOf(r), "", func(string, reflect.Value) {})
		r.Verdict.Verdict, r.Reason = signature.Invalid, signature.WrongSecret
		return r
	}
	var paths []string
	texts(reflect.ValueOf(fill()), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	for n, path := range paths {
		for _, check := range []string{signature.CheckForm, signature.CheckTime, signature.CheckDigest} {
			r, i := fill(), 0
			r.Checks[0].Name = check
			texts(reflect.ValueOf(r), "", func(_ string, text reflect.Value) {
				if i == n && path != ".Checks[].Name" {
					text.SetString("it is: " + secret)
				}
				i++
			})
			e := &record.Event{Request: &record.Message{Headers: []record.Header{{"Authorization", "Bearer " + secret}}, Body: &record.Body{}}}
			must(t, record.MaskReport(t.Context(), e, r))
			if masked := !strings.Contains(mustJSON(t, r), secret); masked == slices.Contains(shown, path) && path != ".Verdict.SecretID" && path != ".Checks[].Name" {
				t.Errorf("%s is masked: %v", path, masked)
			}
		}
	}
	for _, path := range shown {
		if !slices.Contains(paths, path) {
			t.Errorf("there is no %s any more", path)
		}
	}
}

// TestReportsOfOddSignatures: a report does not contain the text that a sender wrote in place of a version, a
// name or a time.
func TestReportsOfOddSignatures(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2hunter2"
	for _, lines := range []string{
		"Stripe-Signature: t=1," + secret + "=" + strings.Repeat("ab", 32), "Stripe-Signature: t=" + secret + ",v1=" + strings.Repeat("ab", 32),
		"Stripe-Signature: t=1790000000,v1=" + secret, "Stripe-Signature: " + secret,
		"X-Slack-Signature: v0=" + strings.Repeat("ab", 32) + "\r\nX-Slack-Request-Timestamp: " + secret, "X-GitHub-Event: a\r\nX-Hub-Signature-256: " + secret,
		"svix-id: " + secret + "\r\nsvix-timestamp: " + secret + "\r\nsvix-signature: " + secret + ",abc v1," + secret,
	} {
		head := []byte("POST / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n\r\n")
		r, err := record.ExplainSignature(&record.SignedRequest{Head: head, ReceivedAt: time.Now()}, "", []signature.Secret{{Value: "x"}})
		must(t, err)
		e := &record.Event{Request: &record.Message{Body: &record.Body{}}}
		must(t, record.MaskReport(t.Context(), e, r))
		if shown := mustJSON(t, r); strings.Contains(shown, "hunter2") {
			t.Errorf("%q: %s", lines, shown)
		}
	}
}

// TestValuesOfLinesAreMasked: Mask hides a secret in the header lines, trailers, reason phrases and bodies of
// all messages.
func TestValuesOfLinesAreMasked(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2hunter2"
	line := func() []record.Header { return []record.Header{{"X-Note", "so " + secret + " is it"}} }
	answer := func() *record.Response {
		return &record.Response{
			HTTPVersion: "HTTP/1.1", Status: 500, Reason: "no " + secret, Headers: line(), Trailers: line(),
			Interim: []record.Interim{{Status: 103, Reason: secret, Headers: line()}},
			Body:    &record.Body{Encoding: record.EncodingUTF8, State: "complete", Data: "echo " + secret},
		}
	}
	e := &record.Event{
		Summary: record.Summary{Path: "/?a=" + secret, URL: "https://shop.localhost/?a=" + secret},
		Request: &record.Message{
			Headers: append(line(), record.Header{"Authorization", "Bearer " + secret}), Trailers: line(),
			Body: &record.Body{Encoding: record.EncodingUTF8, State: "complete", Data: "x " + secret},
		},
		Response: answer(), Attempts: []record.Attempt{{Number: 1, Response: answer()}},
	}
	must(t, record.Mask(t.Context(), e))
	if shown := mustJSON(t, e); strings.Contains(shown, secret) {
		t.Error(shown)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	p, err := json.Marshal(v)
	must(t, err)
	return string(p)
}
