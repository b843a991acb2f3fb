package record

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/signature"
	"relay/wire"
)

// SignatureProvider is a row of the table of senders whose signature schemes are known.
type SignatureProvider struct {
	Name             string   `json:"name"`
	Scheme           string   `json:"scheme" doc:"what is signed and how; {t} is the time as sent, {b} the body, {id} the message id"`
	Headers          []string `json:"headers" doc:"lines that hold signature, time and id"`
	ToleranceSeconds *float64 `json:"toleranceSeconds" doc:"age at which the libraries of the sender refuse a signature; null = never"`
	CanSign          string   `json:"canSign" enum:"yes,body,url,key-pair,no" doc:"body: the body changes with the signature; url: the public URL is signed; key-pair: with a key pair of your own; no: the relay can only verify"`
	Handshake        bool     `json:"handshake" doc:"the relay can answer its registration challenge while the alias is offline"`
	CheckedWith      string   `json:"checkedWith" enum:"library,vector" doc:"what the tests hold the row by: a library of the sender, or a vector that was published or computed with another program"`
}

// SignatureProviders lists the known schemes in the order of their names. A sender with
// several schemes has several rows.
func SignatureProviders() []SignatureProvider {
	var rows []SignatureProvider
	for i := range signature.Senders {
		p := &signature.Senders[i]
		for n := range p.Schemes {
			s := &p.Schemes[n]
			if s.Digest == signature.Network {
				continue
			}
			row := SignatureProvider{Name: p.Name, Scheme: s.Describe(), Headers: s.Headers(), CanSign: string(s.CanSign()), CheckedWith: s.CheckedWith()}
			if s.Old > 0 {
				row.ToleranceSeconds = new(s.Old.Seconds())
			}
			rows = append(rows, row)
		}
	}
	rows = append(rows, SignatureProvider{
		Name: signature.CustomName, Scheme: "a scheme that you define with its secret: line, template, hash, form, key, prefix and tolerance",
		Headers: []string{}, CanSign: string(signature.SignYes), CheckedWith: "vector",
	})
	slices.SortStableFunc(rows, func(a, b SignatureProvider) int { return cmp.Compare(a.Name, b.Name) })
	return rows
}

// SignedRequest is a captured request with the data that a check of its signature needs.
type SignedRequest struct {
	Head       []byte
	Body       []byte // the available part of the body
	Unread     string // reason why Body is not complete: signature.BodyIncomplete or TooLarge; "" = Body is complete
	URL        string // URL of the request as the sender knows it
	ReceivedAt time.Time
}

// ExplainSignature verifies the signature of a request as of the time when the request arrived. If provider is
// "", it uses the sender that it recognises.
func ExplainSignature(r *SignedRequest, provider string, secrets []signature.Secret) (*signature.Report, error) {
	return explain(r, provider, secrets, nil)
}

// explain is ExplainSignature with further secrets, others. If the signature was made with one of them, the
// report says so.
func explain(r *SignedRequest, provider string, secrets, others []signature.Secret) (*signature.Report, error) {
	request := requestOf(r)
	p := senderOf(wire.Fields(r.Head), r.Body)
	if provider != "" {
		if p = signature.Find(provider, request); provider == signature.CustomName {
			return nil, wrongProvider(noDefinition, provider)
		} else if p == nil {
			return nil, wrongProvider("no sender of that name is known; "+nearestProvider(provider), provider)
		}
	}
	if p == nil {
		return &signature.Report{
			Verdict:   signature.Verdict{Verdict: signature.Unchecked, Reason: signature.NoSecret, Message: "the sender of this event was not recognised; name one"},
			Signature: signature.SignatureLine{Parts: []signature.Part{}}, Tried: []string{}, Checks: []signature.Check{},
		}, nil
	}
	return explainBy(p, r, request, secrets, others), nil
}

// requestOf returns a captured request in the form that package signature needs.
func requestOf(r *SignedRequest) *signature.Request {
	method, _, _ := wire.StartLine(r.Head)
	return &signature.Request{Method: string(method), URL: r.URL, Body: r.Body, Line: lineOf(wire.Fields(r.Head))}
}

// explainBy is explain with the scheme of a given sender.
func explainBy(p *signature.Sender, r *SignedRequest, request *signature.Request, secrets, others []signature.Secret) *signature.Report {
	if r.Unread != "" {
		out := signature.Explain(p, nil, nil, request, r.ReceivedAt)
		out.Verdict = signature.Verdict{Verdict: signature.Unchecked, Reason: r.Unread, Message: "the signature covers the whole body, and not all of it is stored"}
		if r.Unread == signature.TooLarge {
			out.Verdict.Message = "the body is too large to be verified by the relay: use relay verify, which computes on your machine"
		}
		return &out
	}
	out := signature.Explain(p, secrets, others, request, r.ReceivedAt)
	return &out
}

const noDefinition = "custom needs a definition: give one, or store one with a secret of the alias"

func wrongProvider(message string, value any) error {
	return &relay.Error{
		Code: relay.CodeValidationFailed, Detail: "body.provider: " + message,
		Fields: []relay.FieldError{{Location: "body.provider", Message: message, Value: value}},
	}
}

func nearestProvider(typed string) string {
	if near := Nearest(typed, providerNames); near != "" {
		return "did you mean " + near
	}
	return "the list of providers names all"
}

// VerdictText returns a report as text for a terminal.
func VerdictText(r *signature.Report) string {
	var b strings.Builder
	b.WriteString(r.Verdict.Verdict + " (" + r.Reason + "): " + r.Message + "\n")
	for _, c := range r.Checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		b.WriteString("  " + mark + "  " + c.Name)
		if c.Detail != "" {
			b.WriteString(": " + c.Detail)
		}
		b.WriteString("\n")
	}
	if r.Verdict.Verdict == signature.Invalid && len(r.Tried) > 0 {
		b.WriteString("  tried: " + strings.Join(r.Tried, "; ") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
