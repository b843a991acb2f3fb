package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/signature"
)

// CustomSender is the sender name of schemes that users define.
const CustomSender = signature.CustomName

// Unchecked is the verdict on a signature that was not compared with any secret.
const Unchecked = signature.Unchecked

// Signature holds the verdict on the signature of a request.
type Signature struct {
	Provider string  `json:"provider"`
	Verdict  string  `json:"verdict" enum:"valid,expired,invalid,missing,unchecked"`
	Reason   string  `json:"reason"`
	Message  string  `json:"message"`
	SignedAt *Time   `json:"signedAt" format:"date-time"`
	SecretID *string `json:"secretId" doc:"secret of the alias that fits"`
}

func signatureOf(e *relay.Event) *Signature {
	s := e.Signature
	if s == nil {
		if !slices.Contains(signingSenders, e.Provider.Name) {
			return nil
		}
		s = unjudged(e)
	}
	return &Signature{
		Provider: s.Provider, Verdict: s.Verdict, Reason: s.Reason, Message: s.Message, SignedAt: timeOf(s.SignedAt), SecretID: textOf(s.SecretID),
	}
}

// unjudged returns the Signature of an event from a known sender if the alias had no secret of that sender.
func unjudged(e *relay.Event) *relay.Signature {
	return &relay.Signature{
		Provider: e.Provider.Name, Verdict: Unchecked, Reason: signature.NoSecret, SignedAt: e.Provider.SignedAt,
		Message: "the alias had no secret of this sender",
	}
}

// SigningSenders lists the senders whose schemes are known.
func SigningSenders() []string { return slices.Clone(signingSenders) }

var signingSenders = func() []string {
	var names []string
	for i := range signature.Senders {
		if s := &signature.Senders[i]; len(s.Schemes) > 0 && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}()

// maxJudged is the largest body, in bytes, of a request that is verified as it arrives.
const maxJudged = 256 << 10

// JudgeArrival verifies the signature of a request as it arrives, with the secrets of its alias. It returns
// nil if the alias has no secret for this request. provider is the recognised sender, target the request
// target.
func JudgeArrival(r *SignedRequest, provider, target string, secrets relay.OpenSecrets) *relay.Signature {
	if len(secrets) == 0 {
		return nil
	}
	request := requestOf(r)
	var out *relay.Signature
	for _, c := range judgedBy(provider, target, secrets, request) {
		if v := c.judge(r, request); v != nil && (out == nil || better(v.Verdict, out.Verdict)) {
			out = v
		}
	}
	return out
}

// judge verifies the signature of a request as it arrives. It returns nil if there is no secret to verify it
// with.
func (c *candidate) judge(r *SignedRequest, request *signature.Request) *relay.Signature {
	s := c.sender.SchemeOf(request)
	if len(c.set) == 0 || s == nil {
		return nil
	}
	out := &relay.Signature{Provider: c.sender.Name, Verdict: Unchecked}
	open := openedOf(c.set)
	unread := r.Unread
	if unread == "" && len(r.Body) > maxJudged {
		unread = signature.TooLarge
	}
	switch {
	case unread == signature.TooLarge:
		out.Reason, out.Message = unread, "the body is larger than 256 KiB, so its signature is not judged at arrival; verify the event to judge it"
	case unread != "":
		out.Reason, out.Message = unread, "the signature covers the whole body, and not all of it arrived"
	case len(open) == 0:
		out.Reason, out.Message = signature.SecretSealed, sealedText
	default:
		v := signature.Verify(s, open, request, r.ReceivedAt)
		if v.Reason == signature.SecretEncoding { // a stored verdict says only that the secret is wrong; VerifyStored names the mistake in the secret
			v.Reason = signature.WrongSecret
		}
		setVerdict(out, withSealed(&v, c.set, open))
	}
	return out
}

const sealedText = "this node has no key that opens the secret; relayd doctor names the key"

// withSealed corrects a verdict that used only the decrypted secrets of a set, open. If none of them matches
// but this node cannot decrypt another secret of the set, the verdict becomes unchecked, because the other
// secret may match.
func withSealed(v *signature.Verdict, set relay.OpenSecrets, open []signature.Secret) *signature.Verdict {
	notFound := v.Reason == signature.WrongSecret || v.Reason == signature.SecretEncoding && v.SecretID == "" || v.Reason == signature.NoSecret
	if len(open) == len(set) || !notFound {
		return v
	}
	out := *v
	out.Verdict, out.Reason, out.Message = Unchecked, signature.SecretSealed, sealedText
	if len(open) > 0 {
		out.Message = fmt.Sprintf("none of the %d secrets that this node can open fits, and it has no key for %d more, of which one may fit; relayd doctor names the key",
			len(open), len(set)-len(open))
	}
	return &out
}

func setVerdict(s *relay.Signature, v *signature.Verdict) {
	s.Verdict, s.Reason, s.Message, s.SignedAt, s.SecretID = v.Verdict, v.Reason, v.Message, v.SignedAt, v.SecretID
}

// openedOf returns the secrets that could be decrypted.
func openedOf(list relay.OpenSecrets) []signature.Secret {
	var out []signature.Secret
	for i := range list {
		if x := &list[i]; !x.Sealed {
			out = append(out, signature.Secret{ID: x.ID, Value: x.Value.Reveal()})
		}
	}
	return out
}

// VerifyStored verifies a stored request with the secrets of its alias, and finds the reason of a failure.
// provider "" means the recognised sender. judged is the verdict to store with the event; nil if this call
// could not reach a verdict, so that the stored one has to stay.
func VerifyStored(r *SignedRequest, provider, target string, secrets relay.OpenSecrets) (report *signature.Report, judged *relay.Signature, err error) {
	request := requestOf(r)
	c := bestOf(candidatesFor(r, provider, target, secrets, request), r, request)
	p, set := c.sender, c.set
	open := openedOf(set)
	var others []signature.Secret
	for _, x := range openedOf(secrets) {
		if !slices.ContainsFunc(open, func(o signature.Secret) bool { return o.ID == x.ID }) {
			others = append(others, x)
		}
	}
	if p == nil {
		report, err = explain(r, provider, open, others)
	} else {
		report = explainBy(p, r, request, open, others)
	}
	if err != nil || p == nil || len(p.Schemes) == 0 {
		return report, nil, err
	}
	if v := withSealed(&report.Verdict, set, open); v != &report.Verdict {
		report.Verdict = *v
		last := &report.Checks[len(report.Checks)-1] // the check that the digest is equal
		last.Detail = v.Message
	}
	switch report.Reason {
	case signature.SecretSealed, signature.TooLarge, signature.BodyIncomplete:
		return report, nil, nil // the verdict is unchecked, so the stored one stays: another node, or the check at arrival, may have found a better one
	}
	judged = &relay.Signature{Provider: p.Name}
	setVerdict(judged, &report.Verdict)
	judged.SignedAt = judged.SignedAt.UTC().Truncate(time.Millisecond)
	return report, judged, nil
}

// targetOf returns the path and query of an event, by which the secrets to verify it are chosen.
func targetOf(e *relay.Event) string { return strings.ToValidUTF8(string(e.Target), "\ufffd") }

// SignedRequestOf returns the request of an event for a check of its signature. If not all of the body is in
// memory, Unread has the reason.
func SignedRequestOf(e *relay.Event, url string) *SignedRequest {
	r := &SignedRequest{Head: e.Request.Head, Body: e.Request.Body.Data, URL: url, ReceivedAt: e.ReceivedAt}
	switch b := &e.Request.Body; {
	case b.State != relay.BodyComplete && b.State != "":
		r.Unread = signature.BodyIncomplete
	case b.Parts > 0 || int64(len(b.Data)) < b.Size:
		r.Unread = signature.TooLarge
	}
	return r
}

// JudgeEvent verifies the signature of an event like JudgeArrival. The verdict is unchecked for a body of
// more than 256 KiB, which is not in memory.
func JudgeEvent(e *relay.Event, site relay.Site, secrets relay.OpenSecrets) *relay.Signature {
	target := targetOf(e)
	return JudgeArrival(SignedRequestOf(e, site.AliasURL(e.Alias)+target), e.Provider.Name, target, secrets)
}
