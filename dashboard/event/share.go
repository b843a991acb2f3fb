package event

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/body"
	"relay/dashboard/page"
	"relay/grant"
	"relay/record"
	"relay/wire"
)

// sharesView lists the shares by which others may replay an event.
type sharesView struct {
	Owner         string // owner of the alias, if the viewer is not the owner and so may not share; "" = the viewer is the owner
	Error         string // reason why there is no list
	List          []relay.Share
	NewURL        string // address of the new share, which is shown only once
	NewAllowsView bool   // the holders of the new share may see the event
}

// shareButton returns the text of the button that opens the shares of an event.
func shareButton(v sharesView) string {
	if n := len(v.List); n > 0 {
		return "Share (" + strconv.Itoa(n) + ")…"
	}
	return "Share…"
}

// shareText describes the rights of the holder of a share.
func shareText(s relay.Share) string {
	text := map[bool]string{true: "replay and view", false: "replay"}[s.View]
	if s.OneUse {
		text += ", once"
	}
	return text
}

// readShares reads the shares of an event. If they cannot be read, the view contains the error as a text,
// because the rest of the page does not need them.
func (p pages) readShares(r *http.Request, who relay.Actor, e *relay.Event, a *relay.Alias) sharesView {
	if a.Owner != who.Account {
		return sharesView{Owner: a.OwnerName}
	}
	list, err := p.Accounts.Shares(r.Context(), who, e.ID)
	v := sharesView{List: list}
	if err != nil && !errors.Is(err, relay.ErrNotFound) {
		v.Error = relay.AsError(err).Detail
	}
	return v
}

// expiries are the lifetimes that the form offers; "" = never expires.
var expiries = []struct{ Name, Value string }{{"in 1 hour", "1h"}, {"in 1 day", "1d"}, {"in 7 days", "7d"}, {"in 30 days", "30d"}, {"never", ""}}

// previewShare shows a share before it is created.
func (p pages) previewShare(_ http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	want, err := wantedShare(r.URL.Query())
	if err != nil {
		return nil, err
	}
	e, err := record.ReadShared(r.Context(), p.Events, who, id, body.Shown)
	if err != nil {
		return nil, err
	}
	a, err := p.Accounts.Alias(r.Context(), who, e.Alias)
	if err != nil {
		return nil, err
	}
	if a.Owner != who.Account {
		return nil, relay.Errorf(relay.CodeForbidden, "only %s, the owner of %s, can share its events", a.OwnerName, a.Name)
	}
	head, err := p.Head(r, a)
	if err != nil {
		return nil, err
	}
	shown, err := record.OfShared(r.Context(), e, want, head.Online)
	if err != nil {
		return nil, err
	}
	return sharePreviewPage(id.String(), shareName(e), r.URL.Query().Get("expires"), sharedOf(e, shown)), nil
}

// shareName returns the type and the label of an event, by which its owner recognizes it in the preview of a
// share.
func shareName(e *relay.Event) string {
	s := record.Summarise(e, relay.Site{}, time.Time{})
	var words []string
	if s.Provider != nil && s.Provider.EventType != nil {
		words = append(words, record.SafeTextMax(*s.Provider.EventType, 60))
	}
	if s.Label != nil {
		words = append(words, "“"+record.SafeTextMax(*s.Label, 60)+"”")
	}
	return strings.Join(words, " ")
}

// createShare creates a share. Its address is shown in this response only.
func (p pages) createShare(_ http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	want, err := wantedShare(r.PostForm)
	if err != nil {
		return nil, err
	}
	secret := page.MadeByForm(r)
	if *secret == "" {
		_, *secret, err = p.Grants().CreateShare(r.Context(), who, grant.ShareRequest{Event: id, View: want.View, OneUse: want.OneUse, ExpiresAt: want.ExpiresAt})
		if err != nil {
			return nil, err
		}
	}
	v, head, err := p.readEventView(r, who, id)
	if err != nil {
		return nil, err
	}
	v.Shares.NewURL, v.Shares.NewAllowsView = p.Site.URL(page.SharePath(*secret)), want.View
	return p.renderEvent(r, who, v, head)
}

// wantedShare reads the form of a share. A share without a lifetime never expires.
func wantedShare(q url.Values) (relay.Share, error) {
	want := relay.Share{View: q.Get("view") == "on", OneUse: q.Get("oneUse") == "on"}
	if text := q.Get("expires"); text != "" {
		at, ok := grant.Expiry(text)
		if !ok {
			return want, relay.Errorf(relay.CodeValidationFailed, "expires: expected a time to live such as 12h or 7d, or nothing for never")
		}
		want.ExpiresAt = at
	}
	return want, nil
}

// revokeShare ends a share.
func (p pages) revokeShare(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	err := p.Accounts.RemoveShare(r.Context(), who, id, r.PathValue("share"))
	if errors.Is(err, relay.ErrNotFound) { // the share has already ended
		err = nil
	}
	return page.SeeOther(w, r, err, page.EventPath(id.String())+"#shares")
}

// sharedView is the view for the holder of a share. It contains nothing about the owner.
type sharedView struct {
	*record.SharedEvent
	Sent, Answered *messageView // with masked secrets
	IsMade         bool         // the event was made and sent with Relay, and not by a sender
	Spent          bool         // a share for one use was used, so only Result is shown
	Action         string       // address of the replay form
	Result         *relay.Attempt
}

// sharedEvent returns the public page of a share.
func (p pages) sharedEvent(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	held, err := p.currentShare(w, r)
	if err != nil {
		return nil, err
	}
	e := held.Event
	states, err := p.Deliver.Status(r.Context(), []relay.Alias{{ID: e.AliasID, Name: e.Alias}})
	if err != nil {
		return nil, err
	}
	shown, err := record.OfShared(r.Context(), e, held.Share, states[0].State == relay.TunnelOnline)
	if err != nil {
		return nil, err
	}
	v := sharedOf(e, shown)
	v.Action = page.SharePath(r.PathValue("token"), "replay")
	if v.Result, err = p.resultOf(r.Context(), held.Actor, e, r.URL.Query().Get("attempt")); err != nil {
		return nil, err
	}
	return sharedPage(v), nil
}

// currentShare returns the share whose token is in the address, and its event as the holder may see it. A
// view does not count as a use. currentShare also sets headers that keep the address, which contains the
// secret, out of referrers and search engines.
func (p pages) currentShare(w http.ResponseWriter, r *http.Request) (grant.Held, error) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("X-Robots-Tag", "noindex, nofollow")
	most := body.Shown
	if r.Method == http.MethodPost {
		most = 0
	}
	held, err := p.Grants().CurrentShare(r.Context(), grant.HeldRequest{Remote: r.RemoteAddr, Secret: r.PathValue("token"), MaxBody: most})
	return held, shareError(err)
}

func shareError(err error) error {
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Errorf(relay.CodeNotFound, "this link has expired, was revoked, or does not exist; ask the person who sent it for a new one")
	}
	return err
}

// sharedReplay sends the event of a share again.
func (p pages) sharedReplay(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	held, err := p.currentShare(w, r)
	who := held.Actor
	if err != nil && relay.AsError(err).Code == relay.CodeNotFound {
		// A repeated form of a used one-use share gets the first response again.
		var unused error
		if who, unused = p.Accounts.UsedShare(r.Context(), r.PathValue("token")); unused != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	return p.Once(func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		if err != nil {
			return nil, err
		}
		return p.replayShared(w, r, held)
	})(w, r, who)
}

func (p pages) replayShared(w http.ResponseWriter, r *http.Request, held grant.Held) (templ.Component, error) {
	replayed, n, err := p.Grants().ReplayShared(r.Context(), held, func(ctx context.Context, who relay.Actor, id relay.ID) (*relay.Event, int, error) {
		return p.Deliver.Replay(ctx, who, id, page.ReplayWait)
	})
	if err != nil {
		return nil, shareError(err)
	}
	if held.Share.OneUse {
		held.Share.View = false
		shown, err := record.OfShared(r.Context(), held.Event, held.Share, false)
		if err != nil {
			return nil, err
		}
		// The address of a used share shows nothing, so this response has to contain the result.
		return sharedPage(sharedView{SharedEvent: shown, Spent: true, Result: replayed.Attempt(n)}), nil
	}
	return page.SeeOther(w, r, nil, page.SharePath(held.Secret)+"?attempt="+strconv.Itoa(n)+"#result")
}

func sharedOf(e *relay.Event, s *record.SharedEvent) sharedView {
	v := sharedView{SharedEvent: s, IsMade: e.Sent != nil}
	if s.Request != nil {
		v.Sent = sharedMessage("shared-request", "Request body", "", s.Request.Headers, s.Request.Body)
	}
	if r := s.Response; r != nil {
		start := record.SafeTextMax(strconv.Itoa(r.Status)+" "+r.Reason, 200)
		v.Answered = sharedMessage("shared-response", "Response body", start, r.Headers, r.Body)
	}
	return v
}

// sharedMessage returns a message whose secrets are masked. Its body has one view and no
// downloads, which are for members only.
func sharedMessage(id, what, start string, headers []record.Header, b *record.Body) *messageView {
	// wire.Fields skips the first line. If that line were empty, wire.Fields would skip the next one as well.
	head := "-\r\n"
	for _, h := range headers {
		head += h.Name() + ": " + h.Value() + "\r\n"
	}
	m := &messageView{Start: start, Headers: pairsOf(wire.Fields([]byte(head + "\r\n")))}
	head = readHead(headers)
	data, err := b.Bytes()
	if err != nil || len(data) == 0 {
		m.Body = body.View{ID: id, What: what, Size: body.SizeText(b.Size), Empty: true}
		if b.Size > 0 {
			m.Body.Note = "This body is not shown: it is binary or could not be read, so secrets in it cannot be masked."
		}
		return m
	}
	// Size is the size after masking, because masking changes the length.
	shown := relay.Body{Data: data, Size: int64(len(data))}
	if b.Truncated {
		shown.Size = max(b.Size, shown.Size+1)
	}
	m.Body = body.Show(body.Source{ID: id, What: what, Body: &shown, Head: []byte(head)})
	m.Body.Size, m.Body.SHA256 = body.SizeText(b.Size), b.SHA256
	return m
}

// readHead returns a head for a body that is already decoded: without its content coding and charset.
func readHead(headers []record.Header) string {
	head := "-\r\n"
	for _, h := range headers {
		if !strings.EqualFold(h.Name(), "content-type") {
			continue
		}
		var kept []string
		for part := range strings.SplitSeq(h.Value(), ";") {
			if name, _, _ := strings.Cut(part, "="); !strings.EqualFold(strings.TrimSpace(name), "charset") {
				kept = append(kept, part)
			}
		}
		return head + h.Name() + ": " + strings.Join(kept, ";") + "\r\n\r\n"
	}
	return head + "\r\n"
}

// resultOf returns the attempt whose number is text, if it is a replay by a share, else nil: holders of a
// share must not see other attempts.
func (p pages) resultOf(ctx context.Context, who relay.Actor, e *relay.Event, text string) (*relay.Attempt, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > e.AttemptCount {
		return nil, nil
	}
	list, err := p.Events.Attempts(ctx, who, e.ID, relay.AttemptPage{Before: n + 1, Limit: 1})
	if err != nil || len(list) == 0 || list[0].N != n || list[0].Actor != string(relay.ActorShare) {
		return nil, err
	}
	return &list[0], nil
}

// resultTexts describe the states of a replay by a share.
var resultTexts = map[string]string{
	relay.StateQueued:      "The tunnel is offline. The replay is queued and delivered when the tunnel is back online.",
	relay.StateDelivering:  "The replay is in progress; reload this page for the result.",
	relay.StateDelivered:   "The local server answered.",
	relay.StateFailed:      "The local server did not answer.",
	relay.StateInterrupted: "The replay was interrupted or canceled.",
	relay.StateCanceled:    "The replay was interrupted or canceled.",
}
