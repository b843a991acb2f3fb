package event

import (
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
	"relay/signature"
)

// signatureView is the card about the signature of a request.
type signatureView struct {
	ID, Alias, Provider string
	Verdict, Message    string
	Cure                string // what the user should change, "" = nothing
	Parts               []signature.Part
	Checks              []signature.Check
	Template            string
	Secrets             string // for the owner: address of the settings, where secrets are added
	Tried               bool   // the verdict is from a check with a typed secret, or from the button Verify
}

// cures are the advice for each reason of a failed verification.
var cures = map[string]string{
	signature.NoSecret:         "Add the signing secret of the endpoint in the settings of the alias, or try one below.",
	signature.SecretSealed:     "Give this node its key: relayd doctor names it.",
	signature.BodyIncomplete:   "Ask the sender to send the event again.",
	signature.TooLarge:         "Verify it now, or use relay verify.",
	signature.TimeTooOld:       "The sender may have sent an old event again, or the request was slow: ask for a new one, or raise the tolerance while you test.",
	signature.TimeInFuture:     "Check the clock of this server and of the sender.",
	signature.TimeMalformed:    "Something between the sender and the relay has changed the line.",
	signature.HeaderMissing:    "Set a secret at the sender, and look for a proxy that removes the line.",
	signature.HeaderMalformed:  "Something between the sender and the relay has cut or changed the line.",
	signature.VersionUnknown:   "Let the sender sign by the usual version.",
	signature.WrongSecret:      "Compare the secret with that of this very endpoint; Verify looks for other reasons.",
	signature.SecretEncoding:   "Enter the secret exactly as the sender shows it, prefix included.",
	signature.SecretWhitespace: "Enter the secret without the space, line break or quotes around it.",
	signature.SecretOfOther:    "Two secrets are interchanged: change the path or the sender of one of them.",
	signature.BodyRewritten:    "Let the proxy or framework in front pass the body on unchanged.",
	signature.URLDiffers:       "Enter the same URL at the sender as the one that the message shows.",
	signature.OtherScheme:      "Choose the sender whose scheme the message names.",
}

// signatureOf returns the card for the signature of an event, from its stored verdict; nil if no
// scheme is known.
func signatureOf(e *relay.Event, s *record.Summary, owner bool) *signatureView {
	if s.Signature == nil {
		return nil
	}
	r := record.SignedRequestOf(e, s.URL)
	v := &signatureView{
		ID: s.ID, Alias: s.Alias, Provider: page.ProviderName(s.Signature.Provider), Verdict: s.Signature.Verdict,
		Message: record.SafeTextMax(s.Signature.Message, 1000), Cure: cures[s.Signature.Reason],
	}
	if owner {
		v.Secrets = page.AliasPath(s.Alias, "settings") + "#secrets"
	}
	if report, err := record.ExplainSignature(r, s.Signature.Provider, nil); err == nil {
		v.show(report, s.Signature.Verdict == signature.Valid || s.Signature.Verdict == signature.Expired)
	}
	return v
}

// title returns the verdict and the sender whose scheme was used.
func (v *signatureView) title() string {
	if v.Provider == "" {
		return "Signature: " + v.Verdict
	}
	return "Signature of " + v.Provider + ": " + v.Verdict
}

// show adds the parts of the signature line and the checks to the card. For a stored verdict, fits is the
// result of the check of the digest; that check is left out if the stored verdict is "unchecked".
func (v *signatureView) show(r *signature.Report, fits bool) {
	v.Template = r.Signed.Template
	for _, p := range r.Signature.Parts {
		v.Parts = append(v.Parts, signature.Part{Name: record.SafeTextMax(p.Name, 100), Value: record.SafeTextMax(p.Value, 300)})
	}
	for _, c := range r.Checks {
		if c.Name == signature.CheckDigest && !v.Tried {
			if c.OK = fits; v.Verdict == signature.Unchecked {
				continue
			}
			c.Detail = ""
		}
		c.Detail = record.SafeTextMax(c.Detail, 300)
		v.Checks = append(v.Checks, c)
	}
}

// verify judges the signature again: with a typed secret, which is not stored, or with the secrets of
// the alias. In the second case it stores the new verdict in the event.
func (p pages) verify(_ http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	if err := p.Limits.Verify(who); err != nil {
		return nil, err
	}
	e, err := p.Events.Request(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	a, err := p.Accounts.Alias(r.Context(), who, e.Alias)
	if err != nil {
		return nil, err
	}
	s := record.Summarise(e, p.Site, e.ReceivedAt)
	signed := &record.SignedRequest{Head: e.Request.Head, URL: s.URL, ReceivedAt: e.ReceivedAt}
	switch b := &e.Request.Body; {
	case b.State != relay.BodyComplete:
		signed.Unread = signature.BodyIncomplete
	case b.Size > maxVerified:
		signed.Unread = signature.TooLarge
	default:
		body, err := record.OpenBody(r.Context(), p.Events, e.ID, 0, b)
		if err != nil {
			return nil, err
		}
		if signed.Body, err = io.ReadAll(body); err != nil {
			return nil, err
		}
	}
	v := &signatureView{ID: s.ID, Alias: s.Alias, Tried: true}
	if a.Owner == who.Account {
		v.Secrets = page.AliasPath(s.Alias, "settings") + "#secrets"
	}
	report, provider, err := p.judge(r, who, e, signed)
	if err != nil {
		return nil, err
	}
	v.Provider = page.ProviderName(cmp.Or(provider, e.Provider.Name))
	v.Verdict, v.Message, v.Cure = report.Verdict.Verdict, record.SafeTextMax(report.Message, 1000), cures[report.Reason]
	v.show(report, false)
	return verifyPage(*v), nil
}

// maxVerified bounds the body that is read to verify a signature, in bytes.
const maxVerified = 1 << 20

// judge checks the signature with the secret of the form or, if the form has none, with the secrets of the
// alias. It returns the sender whose scheme it has used, "" = the recognised sender of the event.
func (p pages) judge(r *http.Request, who relay.Actor, e *relay.Event, signed *record.SignedRequest) (report *signature.Report, provider string, err error) {
	kept, err := p.Accounts.OpenSecrets(r.Context(), e.AliasID)
	if err != nil {
		return nil, "", err
	}
	if secret := r.PostForm.Get("secret"); secret != "" {
		return record.ExplainGiven(signed, string(e.Target), &record.GivenSecret{Value: secret}, kept)
	}
	report, judged, err := record.VerifyStored(signed, "", string(e.Target), kept)
	if err == nil && judged != nil {
		provider = judged.Provider
		err = p.Accounts.StoreSignature(r.Context(), who, e.ID, judged)
	}
	return report, provider, err
}

// templateLegend explains the placeholders of the text that a sender signs, such as {t}.{b}.
func templateLegend(template string) string {
	var legend []string
	for _, p := range [][2]string{{"{t}", "the time as sent"}, {"{id}", "the message id"}, {"{method}", "the method"}, {"{url}", "the URL"}, {"{b}", "the body"}} {
		if strings.Contains(template, p[0]) {
			legend = append(legend, p[0]+" is "+p[1])
		}
	}
	return strings.Join(legend, ", ")
}
