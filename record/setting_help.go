package record

import (
	"cmp"
	"fmt"
	"strings"

	"relay"
)

// SettingHelp describes a setting of an alias for help texts.
type SettingHelp struct {
	Key     string
	Default string // the default as a user would type it; "the server's" if the server's own setting applies
	Values  string // accepted values
	Text    string
}

// settingHelp has the values and the text of each setting by its key.
var settingHelp = map[string][2]string{
	"offlineStatus":    {"200 to 599", "status that callers get while no tunnel is online; the event is queued with any status"},
	"autoDeliver":      {"on, off", "on: deliver the events queued while offline when the tunnel is back, in order"},
	"hostHeader":       {"preserve, rewrite or a host", "`Host` line that your server gets; rewrite: the target of `relay up`, or localhost with plain ssh"},
	"forwarded":        {"on, off", "on: add `X-Forwarded-For`, `-Proto` and `-Host`; a replay sends the same values"},
	"freshConnections": {"on, off", "on: with plain ssh too, open a new connection to your server for each request"},
	"responseTimeout":  {"1ms to 1h", "how long to wait for the head of your server's response; callers then get 504"},
	"retention":        {"up to 3650d", "how long to keep events; queued, shared and pinned ones stay"},
	"handshakes":       {"names, or all", "registration challenges that the relay answers while no tunnel is online"},
	"answers":          {"a JSON list", "responses while offline by method and path, in place of offlineStatus"},
	"verifyToken":      {"a text", "token that Meta or WebSub sends when you enter the URL; it is never shown again"},
	"paused":           {"on, off", "on: treat the alias as offline, also for replays; off works like a reconnect"},
}

// SettingsHelp describes the settings of an alias, in the order of Settings.
func SettingsHelp() (all []SettingHelp) {
	s := relay.DefaultSettings()
	defaults := SettingTexts(&s)
	for _, x := range settings {
		none := "none"
		if x.most > 0 {
			none = "the server's"
		}
		value := strings.TrimSuffix(defaults[x.key], "[]")
		help := settingHelp[x.key]
		all = append(all, SettingHelp{x.key, cmp.Or(value, none), help[0], help[1]})
	}
	return all
}

// SettingsText returns SettingsHelp as lines of text, for the help of a command.
func SettingsText() string {
	var b strings.Builder
	for _, h := range SettingsHelp() {
		fmt.Fprintf(&b, "  %-17s %s (%s; default %s)\n", h.Key, strings.ReplaceAll(h.Text, "`", ""), h.Values, h.Default)
	}
	return b.String()
}
