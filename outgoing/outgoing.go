// Package outgoing makes new events as ordered by a user. It reads the event or the sample that an order is
// based on, and the secret for its signature. The API and the dashboard read the order and show the result;
// package compose changes the bytes.
package outgoing

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/compose"
	"relay/record"
)

// maxFrom is the largest body, in bytes, of an event from which a new event can be made, because the body is
// held in memory.
const maxFrom = 8 << 20

// LastPrefix, followed by the type of an event, is the name of a sample: the newest event of that type.
const LastPrefix = "last:"

// SignNone and SignAuto are values of Sign in an Order: SignNone leaves the request unsigned, SignAuto
// signs it as its sender does.
const SignNone, SignAuto = "none", "auto"

// Maker makes new events. It holds no state and is safe for concurrent use.
type Maker struct {
	Events  relay.Events
	Deliver relay.Deliverer
	Secrets relay.SecretOpener
	Site    relay.Site
	Limits  compose.Limits // the limits of the listener for aliases
	// Hold counts n bytes of memory for the answer to the user who makes the event; nil = they are not counted.
	Hold func(n int64) error
}

// Order describes a new event. It is based on Raw, or else on From, or else on Sample, or else on nothing.
type Order struct {
	Alias  *relay.Alias
	From   string // id of an event of the alias; with Raw, the event that Raw was made from
	Sample string // name of a sample, or last:TYPE
	Raw    []byte // exact bytes of one request
	Edit   compose.Edit
	Sign   string // "" = SignNone
	Secret string // id of the signing secret; "" = a secret that matches the request, and of several the one with the longest path prefix
	NewID  bool   // give the request a new delivery id
	// Given is a secret that a user gives for this call in place of a secret of the alias; it is not stored. nil
	// = none. Sign names the sender of this secret.
	Given *record.GivenSecret
	// Send is set if the event is to be sent, and not only shown. Nothing is then signed while the alias has
	// no tunnel, because the audit log would record a signature that was never sent.
	Send bool
}

// Made is the request of a new event.
type Made struct {
	Base     *compose.Request // the request on which the order is based, unchanged
	Request  *compose.Request
	Outgoing relay.Outgoing // all fields except those about the origin of the event

	provider string // sender of the sample, if the order is based on one
}

// Make makes the request of a new event. This takes time and memory, so the API and the dashboard first count it
// against a limit. Errors: not-found, validation-failed, body-too-large, alias-offline, no-signing-secret, cannot-sign,
// secret-unavailable.
func (m Maker) Make(ctx context.Context, who relay.Actor, o *Order) (*Made, error) {
	x := &Made{Outgoing: relay.Outgoing{Alias: o.Alias, TLS: m.Site.Base.Scheme == "https", Sent: relay.Sent{Actor: who.String()}}}
	err := m.begin(ctx, who, o, x)
	if err == nil && x.Base == nil {
		base := *x.Request // a shallow copy is enough, because changes replace whole fields
		x.Base = &base
	}
	if err == nil && o.Raw == nil {
		err = m.edit(o, x)
	}
	if err == nil {
		err = x.Request.Check(m.Limits)
	}
	if err == nil && o.Send {
		err = m.Ready(ctx, o.Alias)
	}
	if err == nil {
		err = m.sign(ctx, who, o, x)
	}
	if err == nil {
		err = x.Request.Check(m.Limits)
	}
	if err != nil {
		return nil, err
	}
	x.Outgoing.Request = x.Request.Message()
	if x.Outgoing.Sent.MadeFrom != "" {
		x.Outgoing.Sent.Changes = x.Request.Changes
	}
	return x, nil
}

// edit applies the changes of an order.
func (m Maker) edit(o *Order, x *Made) error {
	if more := o.Edit.Memory(x.Request); more > 0 {
		if err := m.hold(3*int64(len(x.Request.Body)) + more); err != nil {
			return err
		}
	}
	return x.Request.Apply(&o.Edit)
}

func (m Maker) hold(n int64) error {
	if m.Hold == nil {
		return nil
	}
	return m.Hold(n)
}

// Ready returns the error alias-offline if the alias has no tunnel: a new event is sent at once, and never
// queued.
func (m Maker) Ready(ctx context.Context, a *relay.Alias) error {
	states, err := m.Deliver.Status(ctx, []relay.Alias{*a})
	if err == nil && states[0].State != relay.TunnelOnline {
		err = relay.Errorf(relay.CodeAliasOffline, "%s has no tunnel at the moment; start it and send again: a new event is never queued", a.Name)
	}
	return err
}

// begin makes the request on which the order is based, before its changes.
func (m Maker) begin(ctx context.Context, who relay.Actor, o *Order, x *Made) (err error) {
	switch {
	case o.Raw != nil:
		return m.parse(ctx, who, o, x)
	case o.From != "":
		return m.from(ctx, who, o, x, o.From)
	case o.Sample != "":
		return m.fromSample(ctx, who, o, x)
	}
	path := o.Edit.Path
	if path == "" {
		path = "/"
	}
	x.Request, err = compose.New(o.Edit.Method, path, m.host(o.Alias))
	return err
}

// parse makes the request from the exact bytes in the order.
func (m Maker) parse(ctx context.Context, who relay.Actor, o *Order, x *Made) error {
	request, err := compose.Parse(o.Raw)
	if err != nil {
		return err
	}
	if o.From != "" {
		if err := m.from(ctx, who, o, x, o.From); err != nil {
			return err
		}
		x.Base = x.Request
		request.Changes = compose.Compare(x.Base, request)
	}
	x.Request = request
	if (o.Sign == "" || o.Sign == SignNone) && request.HasSignature() && !(x.Base != nil && request.SameSignature(x.Base)) {
		x.Outgoing.Sent.SignedBy = relay.SignedByClient
	}
	return nil
}

// from makes the request from a captured request of the alias.
func (m Maker) from(ctx context.Context, who relay.Actor, o *Order, x *Made, name string) error {
	id, err := relay.ParseID(name)
	if err != nil {
		return relay.ErrNotFound
	}
	e, err := m.Events.Request(ctx, who, id, 0)
	if err != nil {
		return err
	}
	if e.AliasID != o.Alias.ID {
		return relay.ErrNotFound
	}
	if err := Usable(e); err != nil {
		return err
	}
	if err := m.hold(3 * e.Request.Body.Size); err != nil {
		return err
	}
	stored, err := record.OpenBody(ctx, m.Events, e.ID, 0, &e.Request.Body)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(stored)
	if err != nil {
		return err
	}
	x.Request = compose.From(&e.Request, body)
	x.Outgoing.ForwardedLines, x.Outgoing.Sent.MadeFrom = e.ForwardedLines, e.ID.String()
	return nil
}

// Usable returns the reason why no new event can be made from an event, or nil.
func Usable(e *relay.Event) error {
	switch {
	case e.Blocker == relay.BlockedRejected, e.Blocker == relay.BlockedIncomplete, e.Request.Body.State != relay.BodyComplete:
		return invalid("body.from", "the request of this event was not stored whole, so that no request can be made from it", "")
	case e.Request.Body.Size > maxFrom:
		return relay.Errorf(relay.CodeBodyTooLarge, "the body of the event has %d bytes; a new event can be made from at most %d", e.Request.Body.Size, maxFrom)
	}
	return nil
}

// fromSample makes the request from a sample, or from the newest event of a type.
func (m Maker) fromSample(ctx context.Context, who relay.Actor, o *Order, x *Made) error {
	if kind, ok := strings.CutPrefix(o.Sample, LastPrefix); ok {
		id, err := m.last(ctx, who, o, kind)
		if err != nil {
			return err
		}
		return m.from(ctx, who, o, x, id)
	}
	sample := compose.FindSample(o.Sample)
	if sample == nil {
		return invalid("body.sample", "there is no such sample; GET /samples lists all", o.Sample)
	}
	x.Request, x.provider = sample.Request(m.host(o.Alias)), sample.Provider
	return nil
}

// Limits of the search for the newest event of a type.
const (
	lastPages = 20
	lastTime  = 5 * time.Second
)

// last returns the id of the newest event of a type from which a request can be made. It reads several pages,
// because a page may end before it contains such an event.
func (m Maker) last(ctx context.Context, who relay.Actor, o *Order, kind string) (string, error) {
	if kind == "" || strings.HasSuffix(kind, "*") {
		return "", invalid("body.sample", "name one type, such as last:invoice.paid", o.Sample)
	}
	begun := time.Now()
	f := relay.Filter{Alias: o.Alias.Name, Type: kind, Limit: 20}
	for range lastPages {
		page, err := m.Events.Events(ctx, who, f)
		if err != nil {
			return "", err
		}
		for i := range page.Events {
			if e := &page.Events[i]; e.Blocker == "" || e.Blocker == relay.BlockedUpgraded {
				return e.ID.String(), nil
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return "", invalid("body.sample", "the alias has no event of this type whose request was stored whole", o.Sample)
		}
		if time.Since(begun) > lastTime {
			break
		}
	}
	return "", invalid("body.sample", "no event of this type is among the newest of the alias; name one by from", o.Sample)
}

// host returns the Host of an alias.
func (m Maker) host(a *relay.Alias) string {
	_, host, _ := strings.Cut(m.Site.AliasURL(a.Name), "://")
	return host
}

// sign gives the request a new delivery id and a new signature, if the order asks for them.
func (m Maker) sign(ctx context.Context, who relay.Actor, o *Order, x *Made) (err error) {
	if o.NewID {
		sender, _, _ := x.Request.SignedAs(x.Base, x.provider, "") // the error is ignored, because a request that cannot be signed may have a delivery id too
		if err := x.Request.Renew(sender); err != nil {
			return err
		}
	}
	name, id := o.Sign, o.Secret
	switch {
	case name == "", name == SignNone:
		return nil
	case o.Given != nil && o.Given.Custom != "":
		return m.signGiven(o, x, compose.CustomName)
	case name == SignAuto:
		if name, err = m.judging(ctx, o, x); err != nil {
			return err
		}
	}
	sender, _, err := x.Request.SignedAs(x.Base, name, "")
	switch {
	case err != nil:
		return err
	case sender != nil:
		name = sender.Name
	case name != "" && name != compose.CustomName:
		return invalid("body.sign", "no sender of that name is known; GET /providers lists all", name)
	case o.Given != nil:
	default:
		if name, id, err = m.secretFor(ctx, o, x, name); err != nil {
			return err
		}
	}
	if o.Given != nil {
		return m.signGiven(o, x, name)
	}
	secret, err := m.Secrets.SigningSecret(ctx, o.Alias.ID, name, x.Request.Path(), id, func(secret string) bool {
		return x.Request.Fits(x.Base, name, secret)
	})
	if err == nil {
		err = m.signBy(o, x, name, secret.Custom, secret.Value.Reveal())
	}
	if err != nil {
		return err
	}
	x.Outgoing.Sent.SignedBy = secret.ID
	return m.Secrets.NoteSigned(ctx, who, o.Alias.ID, secret.SenderSecret)
}

// signGiven signs with a secret that was given for this call only.
func (m Maker) signGiven(o *Order, x *Made, name string) error {
	if name == "" {
		return relay.Errorf(relay.CodeNoSigningSecret, "the sender of this request is not recognised; give a definition of its scheme with the secret")
	}
	x.Outgoing.Sent.SignedBy = relay.SignedByClient
	return m.signBy(o, x, name, o.Given.Custom, o.Given.Value)
}

// signBy signs the request as the sender with the given name does. custom is the definition of the scheme if
// the name is CustomName.
func (m Maker) signBy(o *Order, x *Made, name, custom, secret string) error {
	_, scheme, err := x.Request.SignedAs(x.Base, name, secret)
	if name == compose.CustomName {
		scheme, err = compose.CustomScheme(custom)
	}
	if err != nil {
		return err
	}
	return x.Request.Sign(scheme, secret, m.Site.AliasURL(o.Alias.Name)+x.Request.Path(), time.Now())
}

// judging returns the sender whose scheme verifies the base request. A custom definition of the alias takes
// precedence over a recognised sender for which the alias has no secret. "" = the recognised sender, if any.
func (m Maker) judging(ctx context.Context, o *Order, x *Made) (string, error) {
	sender, _, _ := x.Request.SignedAs(x.Base, x.provider, "") // sign calls SignedAs again and returns its error
	if sender == nil || o.Secret != "" || o.Given != nil {
		return x.provider, nil
	}
	kept, err := m.Secrets.OpenSecrets(ctx, o.Alias.ID)
	if err == nil && record.JudgedByCustom(&record.SignedRequest{Head: x.Base.Head, Body: x.Base.Body}, sender.Name, x.Request.Path(), kept) {
		return compose.CustomName, nil
	}
	return x.provider, err
}

// secretFor chooses the secret for a request whose sender is not recognised, or that a custom definition of
// the alias signs. provider is custom if the order asks for a custom scheme, else "".
func (m Maker) secretFor(ctx context.Context, o *Order, x *Made, provider string) (sender, id string, err error) {
	kept, err := m.Secrets.OpenSecrets(ctx, o.Alias.ID)
	if err != nil {
		return "", "", err
	}
	kept = slices.DeleteFunc(kept, func(s relay.OpenSecret) bool {
		return !s.Sign || o.Secret != "" && s.ID != o.Secret
	})
	if o.Secret != "" && len(kept) == 1 && (provider == "" || kept[0].Provider == provider) {
		return kept[0].Provider, o.Secret, nil
	}
	if found := record.SecretFor(&record.SignedRequest{Head: x.Base.Head, Body: x.Base.Body}, provider, x.Request.Path(), kept); found != nil {
		return found.Provider, found.ID, nil
	}
	if provider == "" {
		return "", "", relay.Errorf(relay.CodeNoSigningSecret, "the sender of this request is not recognised, so that no secret can be chosen; name one by sign")
	}
	return provider, o.Secret, nil // if the alias has no such secret, SigningSecret of the store returns an error that names it
}

// maxValue is the length in bytes of the longest value that an error repeats; a longer one is left out.
const maxValue = 200

func invalid(field, message, value string) error {
	bad := relay.FieldError{Location: field, Message: message}
	if value != "" && len(value) <= maxValue {
		bad.Value = value
	}
	return &relay.Error{Code: relay.CodeValidationFailed, Detail: field + ": " + message, Fields: []relay.FieldError{bad}}
}
