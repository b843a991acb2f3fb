package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
)

// Settings is the outward form of an alias' settings. Durations are texts such as
// 90s or 30d; null means the server's own.
type Settings struct {
	OfflineStatus    int     `json:"offlineStatus"`
	AutoDeliver      bool    `json:"autoDeliver"`
	HostHeader       string  `json:"hostHeader"`
	Forwarded        bool    `json:"forwarded"`
	FreshConnections bool    `json:"freshConnections"`
	ResponseTimeout  *string `json:"responseTimeout"`
	Retention        *string `json:"retention"`
	Paused           bool    `json:"paused"`
}

// OfSettings gives the outward form of settings.
func OfSettings(s relay.Settings) Settings {
	return Settings{
		OfflineStatus:    s.OfflineStatus,
		AutoDeliver:      s.AutoDeliver,
		HostHeader:       s.HostHeader,
		Forwarded:        s.Forwarded,
		FreshConnections: s.FreshConnections,
		ResponseTimeout:  durationText(s.ResponseTimeout),
		Retention:        durationText(s.Retention),
		Paused:           s.Paused,
	}
}

func durationText(d *time.Duration) *string {
	if d == nil {
		return nil
	}
	return textOf(relay.FormatDuration(*d))
}

// setting is one setting of an alias: its key, how a value changes it, and its value as a
// text: on or off, and empty for the server's own.
type setting struct {
	key  string
	set  func(s *relay.Settings, value any) error
	text func(s *relay.Settings) string
}

// settings lists the settings in the order of Settings.
var settings = []setting{
	{
		"offlineStatus", func(s *relay.Settings, v any) error { return setStatus(&s.OfflineStatus, v) },
		func(s *relay.Settings) string { return strconv.Itoa(s.OfflineStatus) },
	},
	toggle("autoDeliver", func(s *relay.Settings) *bool { return &s.AutoDeliver }),
	{
		"hostHeader", func(s *relay.Settings, v any) error { return setHost(&s.HostHeader, v) },
		func(s *relay.Settings) string { return s.HostHeader },
	},
	toggle("forwarded", func(s *relay.Settings) *bool { return &s.Forwarded }),
	toggle("freshConnections", func(s *relay.Settings) *bool { return &s.FreshConnections }),
	span("responseTimeout", maxResponseTimeout, func(s *relay.Settings) **time.Duration { return &s.ResponseTimeout }),
	span("retention", maxRetention, func(s *relay.Settings) **time.Duration { return &s.Retention }),
	toggle("paused", func(s *relay.Settings) *bool { return &s.Paused }),
}

func toggle(key string, field func(*relay.Settings) *bool) setting {
	return setting{
		key, func(s *relay.Settings, v any) error { return setBool(field(s), v) },
		func(s *relay.Settings) string { return map[bool]string{true: "on", false: "off"}[*field(s)] },
	}
}

func span(key string, most time.Duration, field func(*relay.Settings) **time.Duration) setting {
	return setting{
		key, func(s *relay.Settings, v any) error { return setDuration(field(s), v, most) },
		func(s *relay.Settings) string {
			if d := *field(s); d != nil {
				return relay.FormatDuration(*d)
			}
			return ""
		},
	}
}

// SettingTexts returns the settings as texts by their keys: on or off, and "" for the
// server's own.
func SettingTexts(s *relay.Settings) map[string]string {
	texts := map[string]string{}
	for _, x := range settings {
		texts[x.key] = x.text(s)
	}
	return texts
}

// ChangedSettings says for people what differs between two settings; "" when nothing does.
func ChangedSettings(was, is *relay.Settings) string {
	var out []string
	for _, x := range settings {
		if from, to := x.text(was), x.text(is); from != to {
			out = append(out, x.key+" "+cmp.Or(from, "the server's")+" -> "+cmp.Or(to, "the server's"))
		}
	}
	return strings.Join(out, ", ")
}

// Longest durations of the two that an owner may choose.
const (
	maxResponseTimeout = time.Hour
	maxRetention       = 3650 * 24 * time.Hour
)

// SetSetting changes one setting by its outward key. value is a JSON value, or one
// of the words of the command line: on and off for booleans, default for null. An
// unknown key or a value that does not fit is validation-failed and changes nothing.
func SetSetting(s *relay.Settings, key string, value any) error {
	var err error
	if i := slices.IndexFunc(settings, func(x setting) bool { return x.key == key }); i >= 0 {
		err = settings[i].set(s, value)
	} else {
		var keys []string
		for _, x := range settings {
			keys = append(keys, x.key)
		}
		err = fmt.Errorf("there is no such setting; the settings are %s", strings.Join(keys, ", "))
	}
	if err != nil {
		failed := relay.Errorf(relay.CodeValidationFailed, "%s: %s", SafeTextMax(key, 60), err)
		failed.Fields = []relay.FieldError{{Location: "body." + SafeTextMax(key, 60), Message: err.Error(), Value: value}}
		return failed
	}
	return nil
}

func setBool(to *bool, value any) error {
	switch v := value.(type) {
	case bool:
		*to = v
		return nil
	case string:
		switch strings.ToLower(v) {
		case "on", "true", "yes":
			*to = true
			return nil
		case "off", "false", "no":
			*to = false
			return nil
		}
	}
	return fmt.Errorf("expected true or false (on or off on the command line)")
}

func setStatus(to *int, value any) error {
	n, ok := wholeNumber(value)
	if !ok || n < http.StatusOK || n > 599 {
		return fmt.Errorf("expected a status from 200 to 599")
	}
	*to = n
	return nil
}

func wholeNumber(value any) (int, bool) {
	switch v := value.(type) {
	case int:
		return v, true
	case float64:
		return int(v), v == math.Trunc(v) && math.Abs(v) < 1e9
	case json.Number:
		n, err := strconv.Atoi(v.String())
		return n, err == nil
	case string:
		n, err := strconv.Atoi(v)
		return n, err == nil
	}
	return 0, false
}

func setHost(to *string, value any) error {
	v, ok := value.(string)
	if !ok || v == "" || len(v) > 255 || !hostText(v) {
		return fmt.Errorf("expected preserve, rewrite, or a host such as localhost:3000")
	}
	*to = v
	return nil
}

const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%"

func hostText(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(hostBytes, s[i]) < 0 {
			return false
		}
	}
	return true
}

func setDuration(to **time.Duration, value any, most time.Duration) error {
	if value == nil {
		*to = nil
		return nil
	}
	v, ok := value.(string)
	if !ok {
		return fmt.Errorf("expected a duration such as 90s, 15m or 30d, or null")
	}
	if v == "default" || v == "null" || v == "" {
		*to = nil
		return nil
	}
	d, err := relay.ParseDuration(v)
	if err != nil {
		return err
	}
	if d <= 0 || d > most {
		return fmt.Errorf("expected a duration above 0 and at most %s", relay.FormatDuration(most))
	}
	*to = &d
	return nil
}
