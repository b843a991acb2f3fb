package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"relay"
	"relay/record"
	"relay/signature"
)

// maxVerified bounds the body that is read to verify a signature, in bytes, because the body is held in
// memory.
const maxVerified = 8 << 20

// maxForms bounds the memory, in bytes, for the other forms of a body, such as compact JSON, that are tried when a
// signature does not match.
const maxForms = 8 << 20

// verifyRate limits how often an account may have a signature verified.
var verifyRate = Rate{N: 60, Per: time.Minute}

type verifyInput struct {
	Body *struct {
		Provider string  `json:"provider,omitempty" maxLength:"100" doc:"name of the sender, one of GET /providers; the recognised one if absent"`
		Secret   string  `json:"secret,omitempty" maxLength:"10000" doc:"used for this call only: it is not stored, logged or counted"`
		Custom   anyJSON `json:"custom,omitzero" doc:"with the provider custom: the definition of the scheme, for this call only; those of the alias if absent"`
		URL      string  `json:"url,omitempty" maxLength:"20000" doc:"public URL that the sender has signed; that of the event if absent"`
	}
}

func (s *server) addSignatureRoutes() {
	addJSON(s, route{tag: "signatures"}.on("GET /providers", "list-providers", "Senders whose signatures are known"),
		func(context.Context, *requestInfo, *noInput) (record.List[record.SignatureProvider], error) {
			return record.ListOf(record.SignatureProviders()), nil
		})
	addJSON(s, route{tag: "signatures", scope: relay.ScopeEventsRead, resolve: s.resolveRequest, takesSecret: true}.on("POST /events/{id}/verify", "verify-event",
		"Check the signature of an event as of its arrival, and say why it does not verify", http.StatusTooManyRequests), s.verifyEvent)
}

func (s *server) verifyEvent(ctx context.Context, c *requestInfo, in *verifyInput) (*signature.Report, error) {
	if err := s.Limits.Verify(c.who); err != nil {
		return nil, err
	}
	e := c.event
	r := &record.SignedRequest{Head: e.Request.Head, URL: record.Summarise(e, s.Site, time.Now()).URL, ReceivedAt: e.ReceivedAt}
	var given record.GivenSecret
	if in.Body != nil {
		given = record.GivenSecret{Provider: in.Body.Provider, Custom: in.Body.Custom.text(), Value: in.Body.Secret}
		if given.Custom != "" && given.Value == "" {
			return nil, invalid("body.custom", "a definition goes with a secret", nil)
		}
		if in.Body.URL != "" {
			r.URL = in.Body.URL
		}
	}
	if err := s.readSigned(ctx, c, r); err != nil {
		return nil, err
	}
	kept, err := s.Accounts.OpenSecrets(ctx, e.AliasID)
	if err != nil {
		return nil, err
	}
	if given.Value != "" {
		report, _, err := record.ExplainGiven(r, string(e.Target), &given, kept)
		return report, err
	}
	report, judged, err := record.VerifyStored(r, given.Provider, string(e.Target), kept)
	if err == nil && judged != nil {
		err = s.Accounts.StoreSignature(ctx, c.who, e.ID, judged)
	}
	return report, err
}

// readSigned reads the body that a signature covers.
func (s *server) readSigned(ctx context.Context, c *requestInfo, r *record.SignedRequest) error {
	e := c.event
	switch {
	case e.Request.Body.State != relay.BodyComplete:
		r.Unread = signature.BodyIncomplete
	case e.Request.Body.Size > maxVerified:
		r.Unread = signature.TooLarge
	default:
		// Reserve memory for the body, and for the other forms of it that are tried.
		if err := c.answer.Hold(e.Request.Body.Size + min(20*e.Request.Body.Size, maxForms)); err != nil {
			return err
		}
		body, err := record.OpenBody(ctx, s.Events, e.ID, 0, &e.Request.Body)
		if err != nil {
			return err
		}
		r.Body, err = io.ReadAll(body)
		return err
	}
	return nil
}
