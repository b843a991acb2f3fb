package dashboard

import (
	"errors"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// settingsView is the page of an alias' settings and people.
type settingsView struct {
	Name, URL, Owner, You string
	IsOwner               bool // the viewer owns the alias
	Fields                []settingField
	Members               []string
	forms                 settingsForms
	Done                  string
}

// settingsForms are the forms of the page.
type settingsForms struct{ Set, Member, Transfer, Remove form }

func newSettingsForms() settingsForms {
	return settingsForms{form{name: "set"}, form{name: "member"}, form{name: "transfer"}, form{name: "remove"}}
}

// settingField is one setting as the page shows it.
type settingField struct {
	Key, Label, Help, Default string
	Toggle                    bool
	On                        bool   // of a toggle
	Value                     string // of anything else; as typed where that was wrong
}

// settingFields says what each setting does, in the order of the API.
var settingFields = [...]settingField{
	{
		Key: "offlineStatus", Label: "Status while offline", Default: "202",
		Help: "200 to 599: the response to callers while no tunnel is online. The event is queued with any status; senders that retry on errors will send it again.",
	},
	{
		Key: "autoDeliver", Label: "Deliver automatically", Toggle: true, Default: "off",
		Help: "On: events queued while offline are delivered on reconnect, in order. Off: they are kept until “Replay all queued”, because delivering them runs your code.",
	},
	{
		Key: "hostHeader", Label: "Host header", Default: "preserve",
		Help: "preserve: unchanged. rewrite: the target announced by relay up, or localhost with plain ssh. Any other value is sent literally, for example localhost:3000.",
	},
	{
		Key: "forwarded", Label: "Forwarded headers", Toggle: true, Default: "off",
		Help: "Adds X-Forwarded-For, -Proto and -Host when a request is captured. A replay sends the same values.",
	},
	{
		Key: "freshConnections", Label: "New connection for every request", Toggle: true, Default: "off",
		Help: "Off: with plain ssh, a connection to your server can be reused for later requests. On: it never is.",
	},
	{
		Key: "responseTimeout", Label: "Response timeout", Default: "empty (the server’s setting)",
		Help: "How long to wait for the first byte of a response, up to 1h: for example 90s, or 30m while you debug.",
	},
	{
		Key: "retention", Label: "Keep events for", Default: "empty (the server’s setting)",
		Help: "For example 12h or 30d. Older events are deleted, except queued, shared and pinned ones.",
	},
	{
		Key: "paused", Label: "Paused", Toggle: true, Default: "off",
		Help: "Treats the alias as offline, also for replays. Switching it off counts as a reconnect.",
	},
}

func (p *pages) settingsRoutes(mux *http.ServeMux) {
	const path = "/aliases/{alias}/settings"
	mux.Handle("GET "+path, p.signedIn(p.settings))
	mux.Handle("POST "+path, p.signedIn(p.saveSettings))
	mux.Handle("POST "+path+"/members", p.signedIn(p.addMember))
	mux.Handle("POST "+path+"/members/{user}/remove", p.signedIn(p.removeMember))
	mux.Handle("POST "+path+"/transfer", p.signedIn(p.transferAlias))
	mux.Handle("POST "+path+"/remove", p.signedIn(p.removeAlias))
}

func (p *pages) settings(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
	if err != nil {
		return nil, err
	}
	return p.renderSettings(r, who, a, newSettingsForms())
}

func (p *pages) renderSettings(r *http.Request, who relay.Actor, a *relay.Alias, forms settingsForms) (templ.Component, error) {
	members, err := p.Accounts.Members(r.Context(), who, a.Name)
	if err != nil {
		return nil, err
	}
	return settingsPage(settingsView{
		Name: a.Name, URL: p.Site.AliasURL(a.Name), Owner: a.OwnerName, You: who.AccountName, IsOwner: a.Owner == who.Account,
		Fields: fieldsOf(&a.Settings, forms.Set), Members: members, forms: forms, Done: successText(r),
	}), nil
}

// fieldsOf fills in how the settings are, or what was typed where that was refused.
func fieldsOf(set *relay.Settings, f form) []settingField {
	texts := record.SettingTexts(set)
	fields := settingFields
	for i := range fields {
		field := &fields[i]
		field.Value = texts[field.Key]
		if typed := f.values[field.Key]; len(typed) > 0 {
			field.Value = typed[len(typed)-1]
		}
		field.On = field.Value == "on"
	}
	return fields[:]
}

// ownAlias reads an alias and a form for something that only its owner may do.
func (p *pages) ownAlias(w http.ResponseWriter, r *http.Request, who relay.Actor) (*relay.Alias, error) {
	a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
	if err != nil {
		return nil, err
	}
	if a.Owner != who.Account {
		return nil, relay.Errorf(relay.CodeForbidden, "only %s, the owner of %s, may do this", a.OwnerName, a.Name)
	}
	return a, readForm(w, r)
}

// saveSettings changes what the form holds; what it does not hold stays.
func (p *pages) saveSettings(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.ownAlias(w, r, who)
	if err != nil {
		return nil, err
	}
	forms := newSettingsForms()
	forms.Set = posted("set", r)
	trial := a.Settings
	applySettings(&trial, r, forms.Set)
	if !forms.Set.Failed() {
		_, err = p.Accounts.SetAlias(r.Context(), who, a.Name, func(set *relay.Settings) error {
			applySettings(set, r, forms.Set)
			return nil
		})
	}
	if err = forms.Set.addError(err, "offlineStatus"); err != nil {
		return nil, err
	}
	return p.finishSettings(w, r, who, a, forms, forms.Set, "saved")
}

// applySettings changes settings by the fields posted. Each toggle is posted as off
// and, when ticked, as on behind it.
func applySettings(set *relay.Settings, r *http.Request, f form) {
	for i := range settingFields {
		key := settingFields[i].Key
		if typed := r.PostForm[key]; len(typed) > 0 {
			err := record.SetSetting(set, key, strings.TrimSpace(typed[len(typed)-1]))
			_ = f.addError(err, key) // nothing but validation-failed
		}
	}
}

// finishSettings shows the page again with what was wrong in form f, or goes on to it.
func (p *pages) finishSettings(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias, forms settingsForms, f form, done string) (templ.Component, error) {
	if !f.Failed() {
		return seeOther(w, r, aliasPath(a.Name, "settings")+"?done="+done)
	}
	page, err := p.renderSettings(r, who, a, forms)
	if err != nil {
		return nil, err
	}
	return formWithErrors(page), nil
}

func (p *pages) addMember(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.ownAlias(w, r, who)
	if err != nil {
		return nil, err
	}
	forms := newSettingsForms()
	forms.Member = posted("member", r)
	err = p.Accounts.AddMember(r.Context(), who, a.Name, field(r, "user"))
	if errors.Is(err, relay.ErrNotFound) {
		err = relay.Errorf(relay.CodeValidationFailed, "there is no account with that name")
	}
	if err = forms.Member.addError(err, "user"); err != nil {
		return nil, err
	}
	return p.finishSettings(w, r, who, a, forms, forms.Member, "member-added")
}

// removeMember is for the owner; a member may remove itself.
func (p *pages) removeMember(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
	if err != nil {
		return nil, err
	}
	user := r.PathValue("user")
	if err := p.Accounts.RemoveMember(r.Context(), who, a.Name, user); err != nil {
		return nil, err
	}
	if a.Owner != who.Account {
		return seeOther(w, r, "/?done=left")
	}
	return seeOther(w, r, aliasPath(a.Name, "settings")+"?done=member-removed")
}

func (p *pages) transferAlias(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.ownAlias(w, r, who)
	if err != nil {
		return nil, err
	}
	forms := newSettingsForms()
	forms.Transfer = posted("transfer", r)
	if user := field(r, "user"); user == who.AccountName {
		forms.Transfer.errors["user"] = "you already own this alias"
	} else if _, err = p.Accounts.TransferAlias(r.Context(), who, a.Name, user); err == nil {
		return seeOther(w, r, "/?done=transferred")
	}
	if err = forms.Transfer.addError(err, "user"); err != nil {
		return nil, err
	}
	return p.finishSettings(w, r, who, a, forms, forms.Transfer, "")
}

// removeAlias deletes an alias when its name was typed.
func (p *pages) removeAlias(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	a, err := p.ownAlias(w, r, who)
	if err != nil {
		return nil, err
	}
	forms := newSettingsForms()
	forms.Remove = posted("remove", r)
	if field(r, "confirm") == a.Name {
		if err := p.Accounts.RemoveAlias(r.Context(), who, a.Name); err != nil {
			return nil, err
		}
		return seeOther(w, r, "/?done=alias-removed")
	}
	forms.Remove.errors["confirm"] = "type " + a.Name + " to delete it"
	return p.finishSettings(w, r, who, a, forms, forms.Remove, "")
}
