package record

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
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

// settingKeys are the keys of Settings in their order.
var settingKeys = []string{
	"offlineStatus", "autoDeliver", "hostHeader", "forwarded", "freshConnections", "responseTimeout", "retention", "paused",
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
	switch key {
	case "offlineStatus":
		err = setStatus(&s.OfflineStatus, value)
	case "autoDeliver":
		err = setBool(&s.AutoDeliver, value)
	case "hostHeader":
		err = setHost(&s.HostHeader, value)
	case "forwarded":
		err = setBool(&s.Forwarded, value)
	case "freshConnections":
		err = setBool(&s.FreshConnections, value)
	case "responseTimeout":
		err = setDuration(&s.ResponseTimeout, value, maxResponseTimeout)
	case "retention":
		err = setDuration(&s.Retention, value, maxRetention)
	case "paused":
		err = setBool(&s.Paused, value)
	default:
		err = fmt.Errorf("there is no such setting; the settings are %s", strings.Join(settingKeys, ", "))
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
