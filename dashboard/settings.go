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
	Failed                form // the form that was wrong; the zero form = none
	Done                  string
}

// settingField is one setting as the page shows it.
type settingField struct {
	Key, Label, Default, Help string
	Value                     string // as typed where that was wrong
}

// Toggle tells whether the value is on or off.
func (f settingField) Toggle() bool { return f.Default == "off" }

// settingFields says what each setting does, in the order of the API.
var settingFields = [...]settingField{
	{Key: "offlineStatus", Label: "Status while offline", Default: "202", Help: "200 to 599: the response to callers while no tunnel is online. The event is queued with any status; senders that retry on errors will send it again."},
	{Key: "autoDeliver", Label: "Deliver automatically", Default: "off", Help: "On: events queued while offline are delivered on reconnect, in order. Off: they are kept until “Replay all queued”, because delivering them runs your code."},
	{Key: "hostHeader", Label: "Host header", Default: "preserve", Help: "preserve: unchanged. rewrite: the target announced by relay up, or localhost with plain ssh. Any other value is sent literally, for example localhost:3000."},
	{Key: "forwarded", Label: "Forwarded headers", Default: "off", Help: "Adds X-Forwarded-For, -Proto and -Host when a request is captured. A replay sends the same values."},
	{Key: "freshConnections", Label: "New connection for every request", Default: "off", Help: "Off: with plain ssh, a connection to your server can be reused for later requests. On: it never is."},
	{Key: "responseTimeout", Label: "Response timeout", Default: "empty (the server’s setting)", Help: "How long to wait for the first byte of a response, up to 1h: for example 90s, or 30m while you debug."},
	{Key: "retention", Label: "Keep events for", Default: "empty (the server’s setting)", Help: "For example 12h or 30d. Older events are deleted, except queued, shared and pinned ones."},
	{Key: "paused", Label: "Paused", Default: "off", Help: "Treats the alias as offline, also for replays. Switching it off counts as a reconnect."},
}

// settings is the page of an alias' settings.
func (p *pages) settings(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	return p.settingsOf(a).empty(w, r, who)
}

func (p *pages) settingsOf(a *relay.Alias) formPage {
	return func(r *http.Request, who relay.Actor, failed form) (templ.Component, error) {
		members, err := p.Accounts.Members(r.Context(), who, a.Name)
		fields, texts := settingFields, record.SettingTexts(&a.Settings)
		for i := range fields {
			field := &fields[i]
			field.Value = texts[field.Key]
			if typed := failed.named("set").values[field.Key]; len(typed) > 0 {
				field.Value = typed[len(typed)-1]
			}
		}
		return settingsPage(settingsView{
			Name: a.Name, URL: p.Site.AliasURL(a.Name), Owner: a.OwnerName, You: who.AccountName, IsOwner: a.Owner == who.Account,
			Fields: fields[:], Members: members, Failed: failed, Done: successText(r),
		}), err
	}
}

// saveSettings changes what the form holds; what it does not hold stays.
func (p *pages) saveSettings(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f := posted("set", r)
	trial := a.Settings
	applySettings(&trial, f)
	var err error
	if !f.Failed() {
		_, err = p.Accounts.SetAlias(r.Context(), who, a.Name, func(set *relay.Settings) error {
			applySettings(set, f)
			return nil
		})
	}
	return p.settingsOf(a).finish(w, r, who, f, err, "offlineStatus", aliasPath(a.Name, "settings")+"?done=saved")
}

// applySettings changes settings by the fields posted. Each toggle is posted as off
// and, when ticked, as on behind it.
func applySettings(set *relay.Settings, f form) {
	for i := range settingFields {
		key := settingFields[i].Key
		if typed := f.values[key]; len(typed) > 0 {
			err := record.SetSetting(set, key, strings.TrimSpace(typed[len(typed)-1]))
			_ = f.addError(err, key) // nothing but validation-failed
		}
	}
}

func (p *pages) addMember(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	err := p.Accounts.AddMember(r.Context(), who, a.Name, field(r, "user"))
	if errors.Is(err, relay.ErrNotFound) {
		err = relay.Errorf(relay.CodeValidationFailed, "there is no account with that name")
	}
	return p.settingsOf(a).finish(w, r, who, posted("member", r), err, "user", aliasPath(a.Name, "settings")+"?done=member-added")
}

// removeMember is for the owner; a member may remove itself.
func (p *pages) removeMember(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	err := p.Accounts.RemoveMember(r.Context(), who, a.Name, r.PathValue("user"))
	if a.Owner != who.Account {
		return seeOther(w, r, err, "/?done=left")
	}
	return seeOther(w, r, err, aliasPath(a.Name, "settings")+"?done=member-removed")
}

func (p *pages) transferAlias(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f, user := posted("transfer", r), field(r, "user")
	var err error
	if user == who.AccountName {
		f.errors["user"] = "you already own this alias"
	} else {
		_, err = p.Accounts.TransferAlias(r.Context(), who, a.Name, user)
	}
	return p.settingsOf(a).finish(w, r, who, f, err, "user", "/?done=transferred")
}

// removeAlias deletes an alias when its name was typed.
func (p *pages) removeAlias(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f := posted("remove", r)
	if field(r, "confirm") != a.Name {
		f.errors["confirm"] = "type " + a.Name + " to delete it"
	} else if err := p.Accounts.RemoveAlias(r.Context(), who, a.Name); err != nil {
		return nil, err
	}
	return p.settingsOf(a).finish(w, r, who, f, nil, "confirm", "/?done=alias-removed")
}
