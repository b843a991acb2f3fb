package record

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/wire"
)

// Settings is the JSON form of an alias' settings. Durations are texts such as 90s or 30d; null
// means the default of the server.
type Settings struct {
	relay.Settings
	ResponseTimeout *string `json:"responseTimeout"`
	Retention       *string `json:"retention"`
	VerifyToken     *bool   `json:"verifyToken" doc:"true where there is one; it is not shown again"`
}

// OfSettings returns the JSON form of settings.
func OfSettings(s relay.Settings) Settings {
	out := Settings{Settings: s, ResponseTimeout: durationText(s.ResponseTimeout), Retention: durationText(s.Retention)}
	if s.VerifyToken != nil {
		out.VerifyToken = new(true)
	}
	return out
}

func durationText(d *time.Duration) *string {
	if d == nil {
		return nil
	}
	return textOf(relay.FormatDuration(*d))
}

// setting is one setting of an alias.
type setting struct {
	key   string
	field func(s *relay.Settings) any // returns the field that holds the value
	most  time.Duration               // longest duration that an owner may choose
}

// settings lists the settings in the order of Settings.
var settings = []setting{
	{"offlineStatus", func(s *relay.Settings) any { return &s.OfflineStatus }, 0},
	{"autoDeliver", func(s *relay.Settings) any { return &s.AutoDeliver }, 0},
	{"hostHeader", func(s *relay.Settings) any { return &s.HostHeader }, 0},
	{"forwarded", func(s *relay.Settings) any { return &s.Forwarded }, 0},
	{"freshConnections", func(s *relay.Settings) any { return &s.FreshConnections }, 0},
	{"responseTimeout", func(s *relay.Settings) any { return &s.ResponseTimeout }, time.Hour},
	{"retention", func(s *relay.Settings) any { return &s.Retention }, 3650 * 24 * time.Hour},
	{"handshakes", func(s *relay.Settings) any { return &s.Handshakes }, 0},
	{"answers", func(s *relay.Settings) any { return &s.Answers }, 0},
	{"verifyToken", func(s *relay.Settings) any { return &s.VerifyToken }, 0},
	{"paused", func(s *relay.Settings) any { return &s.Paused }, 0},
}

// SettingTexts returns the settings as texts by their keys: on or off for a boolean, and "" for the server's
// default and for values that are never shown.
func SettingTexts(s *relay.Settings) map[string]string {
	texts := map[string]string{}
	for _, x := range settings {
		switch v := x.field(s).(type) {
		case *bool:
			texts[x.key] = map[bool]string{true: "on", false: "off"}[*v]
		case *int:
			texts[x.key] = strconv.Itoa(*v)
		case *string:
			texts[x.key] = *v
		case **time.Duration:
			texts[x.key] = ""
			if *v != nil {
				texts[x.key] = relay.FormatDuration(**v)
			}
		case *[]string:
			texts[x.key] = strings.Join(*v, " ")
		case *[]relay.OfflineAnswer:
			texts[x.key] = AnswersText(*v)
		case **relay.SecretText:
			texts[x.key] = ""
		}
	}
	return texts
}

// ChangedSettings returns the differences between two settings as text; "" if there are none.
func ChangedSettings(was, is *relay.Settings) string {
	var out []string
	left, right := SettingTexts(was), SettingTexts(is)
	for _, x := range settings {
		if was.VerifyToken != is.VerifyToken && x.key == KeyVerifyToken {
			out = append(out, KeyVerifyToken+" "+KeptText(was.VerifyToken)+" -> "+map[bool]string{true: "a new one", false: "none"}[is.VerifyToken != nil])
		}
		if from, to := left[x.key], right[x.key]; from != to {
			none := "the server's"
			switch v := x.field(is).(type) {
			case *[]string:
				none = "none"
			case *[]relay.OfflineAnswer: // the texts are too long for the audit log
				none, from, to = "none", Count(len(was.Answers), "answer", "answers"), Count(len(*v), "answer", "answers")
			}
			out = append(out, x.key+" "+cmp.Or(from, none)+" -> "+cmp.Or(to, none))
		}
	}
	return strings.Join(out, ", ")
}

// SetSetting changes one setting by its key in JSON. The argument value is a JSON value, or a word of the command
// line: on and off for booleans, default for null. An unknown key or an invalid value gives
// validation-failed and changes nothing.
func SetSetting(s *relay.Settings, key string, value any) error {
	var err error
	if i := slices.IndexFunc(settings, func(x setting) bool { return x.key == key }); i >= 0 {
		err = set(settings[i].field(s), value, settings[i].most)
	} else {
		var keys []string
		for _, x := range settings {
			keys = append(keys, x.key)
		}
		err = fmt.Errorf("there is no such setting; the settings are %s", strings.Join(keys, ", "))
	}
	if err != nil {
		failed := relay.Errorf(relay.CodeValidationFailed, "%s: %s", SafeTextMax(key, 60), err)
		if key == KeyVerifyToken { // errors must not contain the token
			value = nil
		}
		failed.Fields = []relay.FieldError{{Location: "body." + SafeTextMax(key, 60), Message: err.Error(), Value: value}}
		return failed
	}
	return nil
}

// KeyVerifyToken is the key of the setting that can be written but is never shown.
const KeyVerifyToken = "verifyToken"

// MaxVerifyToken bounds the setting verifyToken, in bytes.
const MaxVerifyToken = 512

// KeptText returns a text that says whether a value is stored, without showing it.
func KeptText(s *relay.SecretText) string {
	if s == nil {
		return "none"
	}
	return "kept"
}

// setVerifyToken sets a token, which must be valid in a URL. An empty token, null and default remove
// it.
func setVerifyToken(to **relay.SecretText, value any) error {
	text, ok := value.(string)
	switch {
	case value == nil, ok && noValue(text):
		*to = nil
		return nil
	case !ok:
		return errors.New("expected the token as a text, or null")
	case len(text) > MaxVerifyToken || !isLineText(text) || strings.TrimSpace(text) != text:
		return fmt.Errorf("expected at most %d printable ASCII characters, with no space around them", MaxVerifyToken)
	}
	kept := relay.NewSecretText(text)
	*to = &kept
	return nil
}

// CheckHostHeader returns an error if a text is not a valid value of the setting hostHeader. It
// refuses preserve and rewrite in another letter case, which would be sent as host names.
func CheckHostHeader(v string) error {
	switch {
	case v == relay.HostPreserve, v == relay.HostRewrite:
		return nil
	case strings.EqualFold(v, relay.HostPreserve), strings.EqualFold(v, relay.HostRewrite),
		len(v) > 255, !wire.ValidHost([]byte(v)):
		return errors.New("expected preserve, rewrite, or a host such as localhost:3000")
	}
	return nil
}

// noValue reports whether a text on the command line means null, the default of the setting.
func noValue(text string) bool {
	return text == "" || text == "null" || text == "default"
}

// set sets a setting to value; field is a pointer to the setting, and most is its longest duration.
func set(field, value any, most time.Duration) error {
	text := fmt.Sprint(value) // for a boolean or a number from JSON, this is the same text as on the command line
	if value == nil {
		text = ""
	}
	switch to := field.(type) {
	case *bool:
		switch strings.ToLower(text) {
		case "on", "true", "yes":
			*to = true
		case "off", "false", "no":
			*to = false
		default:
			return errors.New("expected true or false (on or off on the command line)")
		}
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil || n < http.StatusOK || n > 599 {
			return errors.New("expected a status from 200 to 599")
		}
		*to = n
	case *string:
		v, _ := value.(string)
		if noValue(v) { // the words null and default would be sent as a host name
			v = ""
		}
		if err := CheckHostHeader(v); err != nil {
			return err
		}
		*to = v
	case *[]string:
		return setHandshakes(to, value)
	case *[]relay.OfflineAnswer:
		return setAnswers(to, value)
	case **relay.SecretText:
		return setVerifyToken(to, value)
	case **time.Duration:
		if noValue(text) {
			*to = nil
			return nil
		}
		if _, ok := value.(string); !ok {
			return errors.New("expected a duration such as 90s, 15m or 30d, or null")
		}
		d, err := relay.ParseDuration(text)
		if err != nil {
			return err
		}
		if d < time.Millisecond || d > most { // the database stores microseconds, so a shorter duration would become 0
			return fmt.Errorf("expected a duration from 1ms to %s", relay.FormatDuration(most))
		}
		*to = &d
	}
	return nil
}
