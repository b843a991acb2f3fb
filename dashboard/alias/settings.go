package alias

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/handshake"
	"relay/record"
)

// settingsView is the page with an alias' settings and members.
type settingsView struct {
	Name, URL, Owner, You string
	IsOwner               bool // the viewer owns the alias
	Fields                []settingField
	Members               []string
	Secrets               []record.SenderSecret
	Senders               []string  // senders that a secret may be for
	Failed                page.Form // the form with an error; the zero form = none
	Preview               []answerView
	Done                  string
}

// settingField is one setting as the page shows it.
type settingField struct {
	Key, Label, Default, Help string
	Value                     string // the stored value, or the typed one if the form is shown again
	Was                       string // the stored value
	Lines                     int    // lines of the text area; 0 = an input of one line
	Secret                    bool   // Value says only whether a secret is stored
}

// answerView is one of the answers that an alias gives to callers while it is offline.
type answerView struct {
	For  string // the requests that get this response
	Text string // head and body of the response
}

// Toggle reports whether the setting has only the values on and off.
func (f settingField) Toggle() bool { return f.Default == "off" }

// settingFields returns the fields of the page without their values, in the order of the API.
func settingFields() (fields []settingField) {
	for _, help := range record.SettingsHelp() {
		f := settingTexts[help.Key]
		f.Key, f.Default = help.Key, help.Default
		fields = append(fields, f)
	}
	return fields
}

// settingTexts has the label and the help of each setting by its key.
var settingTexts = map[string]settingField{
	"offlineStatus":       {Label: "Status while offline", Help: "200 to 599: the response to callers while no tunnel is online. The event is queued with any status; senders that retry on errors will send it again."},
	"autoDeliver":         {Label: "Deliver automatically", Help: "On: events queued while offline are delivered on reconnect, in order. Off: they stay queued until you deliver them, because delivery runs your code."},
	"hostHeader":          {Label: "Host header", Help: "preserve: unchanged. rewrite: the target announced by relay up, or localhost with plain ssh. Any other value is sent literally, for example localhost:3000."},
	"forwarded":           {Label: "Forwarded headers", Help: "Adds X-Forwarded-For, -Proto and -Host when a request is captured. A replay sends the same values."},
	"freshConnections":    {Label: "New connection for every request", Help: "Off: with plain ssh, a connection to your server can be reused for later requests. On: it never is."},
	"responseTimeout":     {Label: "Response timeout", Help: "How long to wait for the head of a response, up to 1h: for example 90s, or 30m while you debug. Empty: the server’s setting."},
	"retention":           {Label: "Keep events for", Help: "For example 12h or 30d. Older events are deleted, except queued, shared and pinned ones. Empty: the server’s setting."},
	"handshakes":          {Label: "Challenges answered while offline", Help: "Registration challenges of senders that the relay answers itself while no tunnel is online, such as “slack graph”, or all. Names: " + strings.Join(handshake.Names(), ", ") + ". Those that need a secret are answered only where the alias holds it."},
	"answers":             {Label: "Answers while offline", Lines: 6, Help: "What callers get in place of the status above, as a JSON list. The first answer whose method and pathPrefix fit is sent; the event is queued as before. Example: " + record.ExampleAnswers},
	record.KeyVerifyToken: {Label: "Verify token", Secret: true, Help: "The token that you enter at Meta, WhatsApp or a WebSub hub beside the URL. The challenge “meta” is answered only with it. It is stored sealed and never shown again; a new one replaces it, and “default” removes it."},
	"paused":              {Label: "Paused", Help: "Treats the alias as offline, also for replays. Switching it off counts as a reconnect."},
}

// settings returns the page of an alias' settings.
func (p Pages) settings(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	return p.settingsOf(a).Empty(w, r, who)
}

func (p Pages) settingsOf(a *relay.Alias) page.FormPage {
	return func(r *http.Request, who relay.Actor, failed page.Form) (templ.Component, error) {
		members, err := p.Accounts.Members(r.Context(), who, a.Name)
		if err != nil {
			return nil, err
		}
		kept, err := p.Accounts.Secrets(r.Context(), who, a.Name)
		if err != nil {
			return nil, err
		}
		secrets := make([]record.SenderSecret, len(kept))
		for i := range kept {
			secrets[i] = record.OfSecret(kept[i])
		}
		fields, texts := settingFields(), record.SettingTexts(&a.Settings)
		trial := a.Settings
		for i := range fields {
			field := &fields[i]
			field.Was = texts[field.Key]
			if field.Secret {
				field.Value = record.KeptText(a.Settings.VerifyToken)
				continue
			}
			field.Value = failed.Named("set").Shown(field.Key, field.Was)
			// trial gets the typed values, for the preview of the answers. A value with an error leaves its
			// setting unchanged.
			_ = record.SetSetting(&trial, field.Key, field.Value)
		}
		return settingsPage(settingsView{
			Name: a.Name, URL: p.Site.AliasURL(a.Name), Owner: a.OwnerName, You: who.AccountName, IsOwner: a.Owner == who.Account,
			Fields: fields, Members: members, Secrets: secrets, Senders: record.SigningSenders(), Failed: failed, Done: page.SuccessText(r), Preview: previewOf(&trial),
		}), nil
	}
}

// saveSettings applies the changes that the user made in the form. It refuses to undo a change that
// another user has made since the page was made.
func (p Pages) saveSettings(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f := page.Posted("set", r)
	trial := a.Settings
	stale := applySettings(&trial, f)
	if f.Values.Has("preview") {
		return p.settingsOf(a)(r, who, f)
	}
	if !f.Failed() {
		_, err := p.Accounts.SetAlias(r.Context(), who, a.Name, func(set *relay.Settings) error {
			clear(f.Errors)
			trial = *set
			if stale = applySettings(set, f); stale != nil {
				return page.ErrStale
			}
			return nil
		})
		if stale == nil {
			return p.settingsOf(a).Finish(w, r, who, f, err, "offlineStatus", page.AliasPath(a.Name, "settings")+"?done=saved")
		}
		now := *a
		now.Settings = trial
		a = &now
	}
	texts := record.SettingTexts(&a.Settings)
	for _, key := range stale {
		f.Errors[key] = page.StaleText(texts[key], p.LastChange(r, who, "alias.set", a.Name, key+" "))
	}
	body, err := p.settingsOf(a).Finish(w, r, who, f, nil, "", "")
	if shown, ok := body.(page.WithStatus); ok && len(stale) > 0 {
		return page.WithStatus{Component: shown.Component, Status: http.StatusConflict}, err
	}
	return body, err
}

// previewOf returns the views of set.Answers, which callers can get while the alias is offline.
func previewOf(set *relay.Settings) []answerView {
	list := make([]answerView, 0, len(set.Answers))
	for i := range set.Answers {
		a := &set.Answers[i]
		v := answerView{For: "any method", Text: fmt.Sprintf("HTTP/1.1 %d %s\n", a.Status, http.StatusText(a.Status))}
		if a.Method != nil {
			v.For = *a.Method
		}
		v.For += " " + a.PathPrefix + "…"
		for _, l := range a.Headers {
			v.Text += l[0] + ": " + l[1] + "\n"
		}
		v.Text += "\n" + record.SafeLines(record.AnswerBytes(a.Body), 20)
		list = append(list, v)
	}
	return list
}

// answerChallenge adds one challenge to those that the alias answers while it is offline. It stores the typed
// secret or verify token if the answer needs one.
func (p Pages) answerChallenge(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	name, value, need := page.Field(r, "name"), r.PostForm.Get("secret"), handshake.NeedOf(page.Field(r, "name"))
	if value == "" && need != handshake.NeedsNothing {
		return nil, relay.Errorf(relay.CodeValidationFailed, "the answer to %s needs what you entered at the sender; go back and type it", record.SafeTextMax(name, 60))
	}
	if need == handshake.NeedsSecret {
		if _, err := p.Accounts.AddSecret(r.Context(), who, a.Name, relay.SenderSecret{Provider: name}, relay.NewSecretText(value)); err != nil {
			return nil, err
		}
	}
	_, err := p.Accounts.SetAlias(r.Context(), who, a.Name, func(set *relay.Settings) error {
		if need == handshake.NeedsToken {
			if err := record.SetSetting(set, record.KeyVerifyToken, value); err != nil {
				return err
			}
		}
		if set.AnswersChallenge(name) {
			return nil
		}
		return record.SetSetting(set, "handshakes", append(slices.Clone(set.Handshakes), name))
	})
	return page.SeeOther(w, r, err, page.AliasPath(a.Name, "settings")+"?done=saved")
}

// Missed is a registration challenge that was queued because the alias was not set to answer it.
type Missed struct {
	Alias, Name, Text string
	Offer             bool   // the viewer may change the setting that answers such challenges
	Needs             string // label of the field that the user must fill in to change the setting; "" = none
}

// MissedOf returns the hint for a registration challenge that the alias did not answer, and nil for other events.
func MissedOf(e *relay.Event, a *relay.Alias, who relay.Actor) *Missed {
	if e.MissedHandshake == "" {
		return nil
	}
	v := &Missed{Alias: a.Name, Name: e.MissedHandshake, Text: record.MissedText(e)}
	need := handshake.NeedOf(v.Name)
	switch {
	case !a.Settings.AnswersChallenge(v.Name), need == handshake.NeedsToken && a.Settings.VerifyToken == nil:
		v.Offer, v.Needs = a.Owner == who.Account, needLabels[need]
	case need == handshake.NeedsNothing:
		v.Text = "This is a registration challenge (" + v.Name + ") that came before the alias answered those. Let the sender try again."
	default:
		v.Text = "This is a registration challenge (" + v.Name + ") that came before the alias answered those, or did not fit its " + strings.ToLower(needLabels[need]) + ". Compare it in the settings, and let the sender try again."
	}
	return v
}

// needLabels has the label of the field for the value that the answer to a challenge needs.
var needLabels = map[handshake.Need]string{handshake.NeedsSecret: "Secret", handshake.NeedsToken: "Verify token"}

// missedOf returns a challenge among the newest queued events that the alias would still not answer;
// nil = there is none.
func (p Pages) missedOf(r *http.Request, who relay.Actor, a *relay.Alias, queued int) *Missed {
	if queued == 0 {
		return nil
	}
	// After an error the page is shown without the hint.
	found, _ := p.Events.Events(r.Context(), who, relay.Filter{Alias: a.Name, State: relay.StateQueued, Limit: 50})
	for i := range found.Events {
		if v := MissedOf(&found.Events[i], a, who); v != nil && v.Offer {
			return v
		}
	}
	return nil
}

// applySettings applies the posted fields to the settings, and returns the keys of those that another
// user has changed in the meantime. Each toggle is posted as off, followed by on if it is ticked.
func applySettings(set *relay.Settings, f page.Form) (stale []string) {
	texts := record.SettingTexts(set)
	for _, help := range record.SettingsHelp() {
		key := help.Key
		typed, want, isStale := f.Change(key, texts[key])
		switch {
		case isStale:
			stale = append(stale, key)
		case want:
			err := record.SetSetting(set, key, typed)
			// SetSetting returns only the error validation-failed. AddError puts it into the form and returns
			// nil.
			_ = f.AddError(err, key)
		}
	}
	return stale
}

func (p Pages) addMember(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	err := p.Accounts.AddMember(r.Context(), who, a.Name, page.Field(r, "user"))
	if errors.Is(err, relay.ErrNotFound) {
		err = relay.Errorf(relay.CodeValidationFailed, "there is no account with that name")
	}
	return p.settingsOf(a).Finish(w, r, who, page.Posted("member", r), err, "user", page.AliasPath(a.Name, "settings")+"?done=member-added")
}

// removeMember removes a member. The owner may remove any member, a member only itself.
func (p Pages) removeMember(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	err := p.Accounts.RemoveMember(r.Context(), who, a.Name, r.PathValue("user"))
	if a.Owner != who.Account {
		return page.SeeOther(w, r, err, "/?done=left")
	}
	return page.SeeOther(w, r, err, page.AliasPath(a.Name, "settings")+"?done=member-removed")
}

func (p Pages) transferAlias(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f, user := page.Posted("transfer", r), page.Field(r, "user")
	var err error
	if user == who.AccountName {
		f.Errors["user"] = "you already own this alias"
	} else {
		_, err = p.Accounts.TransferAlias(r.Context(), who, a.Name, user)
	}
	return p.settingsOf(a).Finish(w, r, who, f, err, "user", "/?done=transferred")
}

// removeAlias deletes an alias if its name was typed as a confirmation.
func (p Pages) removeAlias(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f := page.Posted("remove", r)
	if page.Field(r, "confirm") != a.Name {
		f.Errors["confirm"] = "type " + a.Name + " to delete it"
	} else if err := p.Accounts.RemoveAlias(r.Context(), who, a.Name); err != nil {
		return nil, err
	}
	return p.settingsOf(a).Finish(w, r, who, f, nil, "confirm", "/?done=alias-removed")
}
