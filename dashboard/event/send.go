package event

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/budget"
	"relay/compose"
	"relay/dashboard/body"
	"relay/dashboard/page"
	"relay/outgoing"
	"relay/record"
)

// resendView describes the ways to send an event again as a new one.
type resendView struct {
	Signs  bool   // the event can be signed with the scheme of its sender
	Sender string // "" = the sender is not recognised
}

// resendOf returns the ways in which a new event can be made from an event; nil = there is none.
func resendOf(e *relay.Event) *resendView {
	if outgoing.Usable(e) != nil {
		return nil
	}
	v := &resendView{}
	r := compose.From(&e.Request, nil)
	if sender := r.SenderNamed(e.Provider.Name); sender != nil {
		_, err := r.Scheme(sender)
		v.Signs, v.Sender = err == nil, page.ProviderName(sender.Name)
	}
	return v
}

// Fields of the form of a new event.
const (
	fieldFrom, fieldSample                          = "from", "sample"
	fieldMethod, fieldPath, fieldHeaders, fieldBody = "method", "path", "headers", "body"
	fieldSign, fieldNewID                           = "sign", "newId"
	fieldSecret, fieldCustom                        = "secret", "custom"
	fieldShown                                      = "shown" // hash of the form's content at the last preview
)

// signGiven is the choice to sign with a secret that is typed into the form and not stored.
const signGiven = "given"

// sendView is the page that makes a new event.
type sendView struct {
	Alias, Owner string
	Online       bool
	From         *record.Summary // the event that the new one is made from; nil = it is made from a sample or from nothing
	Form         page.Form
	Base         *compose.Request
	BodyNote     string // reason why the form cannot change the body, "" = it can
	Signers      []signer
	NoSecret     string // reason why there is no secret to sign with, "" = there is one
	Settings     string // address where the owner adds a secret; "" = the viewer is not the owner
	Samples      []string
	Types        []string // event types of the alias
	Failed       string   // errors that belong to no field
	Status       int      // status of the response
	Preview      *previewView
}

// previewView is a new event before it is sent.
type previewView struct {
	Diff     *body.Diff // nil = the event is not made from another one
	Text     string     // the text of the request
	Cut      bool       // Text is only the beginning of the request
	SignedBy string
	Changed  bool // the form was changed after the previous preview
}

// signer is a way to sign, as the form offers it.
type signer struct{ Value, Text, Provider string }

// Title returns the title of the page.
func (v *sendView) Title() string {
	if v.From == nil {
		return "Send a new event"
	}
	return "Send " + v.name() + " again"
}

func (v *sendView) name() string {
	if p := v.From.Provider; p != nil && p.EventType != nil {
		return record.SafeTextMax(*p.EventType, 60)
	}
	return record.SafeTextMax(v.From.Method+" "+v.From.Path, 80)
}

// composePage returns the form of a new event: filled from the event or sample that the address names, or
// empty.
func (p pages) composePage(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	q := r.URL.Query()
	f := page.Form{Name: "send", Values: url.Values{}, Errors: map[string]string{}}
	for _, name := range []string{fieldFrom, fieldSample, fieldSign} {
		f.Values.Set(name, q.Get(name))
	}
	if strings.HasPrefix(f.Values.Get(fieldSample), outgoing.LastPrefix) {
		// The store has to search for the newest event of the type, so the page counts against the limit of
		// signature checks.
		if err := p.Limits.Verify(who); err != nil {
			return nil, err
		}
	}
	v, _, err := p.readSend(r.Context(), who, a, f, nil)
	if err != nil {
		return nil, err
	}
	return showSend(v), nil
}

// send shows a preview of the event that the form describes. If the second button of the form was pressed,
// and the form is unchanged since the last preview, it sends the event.
func (p pages) send(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	if !who.Scopes.Has(relay.ScopeEventsSend) {
		return nil, relay.Errorf(relay.CodeForbidden, "you may read the events of %s, but not send new ones", a.Name)
	}
	f, maker := page.Posted("send", r), p.maker(holder(w))
	sends := f.Values.Has(page.OnceField)
	if err := p.countSend(who, sends); err != nil {
		return nil, err
	}
	v, base, err := p.readSend(r.Context(), who, a, f, maker.Hold)
	if err != nil {
		return nil, err
	}
	order, ok := orderOf(a, &f, base)
	if order.Secret != "" {
		i := slices.IndexFunc(v.Signers, func(s signer) bool { return s.Value == order.Secret })
		if i < 0 {
			f.Errors[fieldSign], ok = "This secret is not there any more, or may not sign.", false
		} else {
			order.Sign = v.Signers[i].Provider
		}
	}
	if !ok {
		v.Status = http.StatusUnprocessableEntity
		return showSend(v), nil
	}
	sum := sumOf(f.Values)
	order.Send = sends && f.Values.Get(fieldShown) == sum
	made, err := maker.Make(r.Context(), who, order)
	if err != nil {
		return refuseSend(v, err)
	}
	if order.Send {
		return p.sendNow(w, r, who, made, v)
	}
	if v.Preview, err = previewOf(r.Context(), order, made); err != nil {
		return nil, err
	}
	if v.Preview.Changed = sends; sends {
		v.Status = http.StatusConflict
	}
	f.Values.Set(fieldShown, sum)
	return showSend(v), nil
}

// sendNow sends the event of the preview, and redirects to its page.
func (p pages) sendNow(w http.ResponseWriter, r *http.Request, who relay.Actor, made *outgoing.Made, v *sendView) (templ.Component, error) {
	made.Outgoing.From, _ = netip.ParseAddrPort(r.RemoteAddr)
	e, err := p.Deliver.Send(r.Context(), who, made.Outgoing, page.ReplayWait)
	if err != nil {
		return refuseSend(v, err)
	}
	return page.SeeOther(w, r, nil, page.EventPath(e.ID.String()))
}

// countSend counts a send against the rate limit of replays, or a preview against the limit of
// signature checks, because a preview may be signed.
func (p pages) countSend(who relay.Actor, sends bool) error {
	if sends {
		return p.Limits.Replay(who)
	}
	return p.Limits.Verify(who)
}

func (p pages) maker(hold func(int64) error) outgoing.Maker {
	return outgoing.Maker{Events: p.Events, Deliver: p.Deliver, Secrets: p.Accounts, Site: p.Site, Limits: p.Sending, Hold: hold}
}

// holder returns a function that reserves memory for the answer to a form; nil if the answer does not count
// in a budget.
func holder(w http.ResponseWriter) func(int64) error {
	for {
		switch x := w.(type) {
		case *budget.Writer:
			return x.Hold
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return nil
		}
	}
}

// readSend reads the data of the page, and the request from which the new one is made.
func (p pages) readSend(ctx context.Context, who relay.Actor, a *relay.Alias, f page.Form, hold func(int64) error) (*sendView, *compose.Request, error) {
	v := &sendView{Alias: a.Name, Owner: a.OwnerName, Form: f, Samples: []string{}}
	base := &outgoing.Order{Alias: a, From: f.Values.Get(fieldFrom), Sample: f.Values.Get(fieldSample)}
	if base.From == "" && base.Sample == "" {
		base.Edit = compose.Edit{Method: http.MethodPost, Path: "/"}
	}
	made, err := p.maker(hold).Make(ctx, who, base)
	if err != nil {
		return nil, nil, err
	}
	v.Base = made.Request
	if from := made.Outgoing.Sent.MadeFrom; from != "" {
		id, _ := relay.ParseID(from)
		e, err := p.Events.Request(ctx, who, id, 0)
		if err != nil {
			return nil, nil, err
		}
		v.From = record.Summarise(e, p.Site, e.ReceivedAt)
		f.Values.Set(fieldFrom, from)
		// The form names this event in place of the sample, so that it keeps using this event even if a newer
		// one of the type arrives.
		f.Values.Del(fieldSample)
	}
	v.BodyNote = bodyNote(v.Base)
	states, err := p.Deliver.Status(ctx, []relay.Alias{*a})
	if err != nil {
		return nil, nil, err
	}
	v.Online = states[0].State == relay.TunnelOnline
	if err := p.readSigners(ctx, who, a, v); err != nil {
		return nil, nil, err
	}
	for _, s := range compose.Samples("") {
		v.Samples = append(v.Samples, s.Name())
	}
	choices, err := p.Events.Choices(ctx, who, a.Name)
	for _, kind := range choices.Types {
		if kind == record.SafeText(kind) {
			v.Types = append(v.Types, outgoing.LastPrefix+kind)
		}
	}
	fillForm(v)
	return v, made.Request, err
}

// readSigners lists the ways to sign: none, the sender's own scheme, a secret of the alias, or a secret that
// the user types.
func (p pages) readSigners(ctx context.Context, who relay.Actor, a *relay.Alias, v *sendView) error {
	secrets, err := p.Accounts.Secrets(ctx, who, a.Name)
	if err != nil {
		return err
	}
	as, sender := "not signed", v.Base.Sender()
	if v.Base.HasSignature() {
		as = "not signed anew: the old signature stays"
	}
	v.Signers = append(v.Signers, signer{Value: outgoing.SignNone, Text: as})
	secrets = slices.DeleteFunc(secrets, func(s relay.SenderSecret) bool { return !s.Sign })
	if sample, _, ok := strings.Cut(v.Form.Values.Get(fieldSample), "/"); ok {
		sender = v.Base.SenderNamed(sample)
	}
	for _, s := range secrets {
		if sender != nil && s.Provider == sender.Name && len(v.Signers) == 1 {
			v.Signers = append(v.Signers, signer{Value: outgoing.SignAuto, Text: "freshly, as " + page.ProviderName(sender.Name) + " does"})
		}
	}
	if v.Form.Values.Get(fieldSign) == "" {
		v.Form.Values.Set(fieldSign, v.Signers[len(v.Signers)-1].Value)
	}
	for _, s := range secrets {
		text := "by the secret " + s.ID + " of " + page.ProviderName(s.Provider)
		if s.Path != "" {
			text += ", for " + record.SafeTextMax(s.Path, 60)
		}
		v.Signers = append(v.Signers, signer{s.ID, text, s.Provider})
	}
	switch {
	case sender != nil && len(v.Signers) > 1 && v.Signers[1].Value == outgoing.SignAuto:
	case sender != nil:
		v.NoSecret = "No secret of " + page.ProviderName(sender.Name) + " may sign requests of this alias."
	case len(secrets) == 0:
		v.NoSecret = "No secret of this alias may sign."
	}
	v.Signers = append(v.Signers, signer{Value: signGiven, Text: "by a secret that you enter below"})
	if a.Owner == who.Account {
		v.Settings = page.AliasPath(a.Name, "settings") + "#secrets"
	}
	if auto := (signer{Value: outgoing.SignAuto, Text: "freshly, as the sender does"}); v.Form.Values.Get(fieldSign) == outgoing.SignAuto && v.Signers[min(1, len(v.Signers)-1)].Value != auto.Value {
		// The address asks for this signer, and the page says why the signer cannot be used.
		v.Signers = slices.Insert(v.Signers, 1, auto)
	}
	return nil
}

// sumOf returns a hash of the content of the form, which is the same for each kind of line ends that
// browsers use.
func sumOf(values url.Values) string {
	sum := sha256.New()
	for _, name := range []string{fieldFrom, fieldSample, fieldMethod, fieldPath, fieldHeaders, fieldBody, fieldSign, fieldNewID, fieldSecret, fieldCustom} {
		text := withLF(values.Get(name))
		fmt.Fprintf(sum, "%s %d %s", name, len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// refuseSend shows the form again, with an error at its field or above all fields.
func refuseSend(v *sendView, err error) (templ.Component, error) {
	e := relay.AsError(err)
	v.Status = relay.Status(e.Code)
	for _, bad := range e.Fields {
		name, _, _ := strings.Cut(strings.TrimPrefix(bad.Location, "body."), "[")
		name, _, _ = strings.Cut(name, ".")
		name = cmp.Or(map[string]string{"removeHeaders": fieldHeaders, "secretId": fieldSign}[name], name)
		if !slices.Contains([]string{fieldMethod, fieldPath, fieldHeaders, fieldBody, fieldSign, fieldNewID}, name) {
			v.Failed = bad.Message
			continue
		}
		v.Form.Errors[name] = bad.Message
	}
	if len(e.Fields) == 0 {
		v.Failed = e.Detail
	}
	if e.Code == relay.CodeNoSigningSecret {
		v.Form.Values.Set(fieldSign, signGiven)
	}
	if v.Status >= http.StatusInternalServerError && e.Code != relay.CodeSecretUnavailable {
		return nil, err
	}
	return showSend(v), nil
}

func showSend(v *sendView) templ.Component {
	return page.WithStatus{Component: sendPage(v), Status: cmp.Or(v.Status, http.StatusOK)}
}
