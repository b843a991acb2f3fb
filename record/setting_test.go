package record_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"relay"
	"relay/record"
)

func TestSetSetting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key   string
		value any
		ok    func(relay.Settings) bool
	}{
		{"offlineStatus", float64(503), func(s relay.Settings) bool { return s.OfflineStatus == 503 }},
		{"offlineStatus", "204", func(s relay.Settings) bool { return s.OfflineStatus == 204 }},
		{"offlineStatus", json.Number("599"), func(s relay.Settings) bool { return s.OfflineStatus == 599 }},
		{"autoDeliver", true, func(s relay.Settings) bool { return s.AutoDeliver }},
		{"forwarded", "on", func(s relay.Settings) bool { return s.Forwarded }},
		{"freshConnections", "TRUE", func(s relay.Settings) bool { return s.FreshConnections }},
		{"paused", "off", func(s relay.Settings) bool { return !s.Paused }},
		{"hostHeader", "localhost:3000", func(s relay.Settings) bool { return s.HostHeader == "localhost:3000" }},
		{"hostHeader", "[::1]:3000", func(s relay.Settings) bool { return s.HostHeader == "[::1]:3000" }},
		{"hostHeader", "rewrite", func(s relay.Settings) bool { return s.HostHeader == "rewrite" }},
		{"responseTimeout", "1h", func(s relay.Settings) bool { return *s.ResponseTimeout == time.Hour }},
		{"retention", "30d", func(s relay.Settings) bool { return *s.Retention == 30*24*time.Hour }},
		{"retention", nil, func(s relay.Settings) bool { return s.Retention == nil }},
		{"responseTimeout", "default", func(s relay.Settings) bool { return s.ResponseTimeout == nil }},
	} {
		s := relay.DefaultSettings()
		if err := record.SetSetting(&s, tt.key, tt.value); err != nil || !tt.ok(s) {
			t.Errorf("%s=%v: %v, %+v", tt.key, tt.value, err, s)
		}
	}
}

// TestSetSettingTakesTheWordsForNull: nil, null, default and an empty value reset a setting and change no
// other.
func TestSetSettingTakesTheWordsForNull(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"verifyToken", "responseTimeout", "retention", "handshakes", "answers"} {
		for _, value := range []any{nil, "null", "default", ""} {
			s := relay.DefaultSettings()
			token := relay.NewSecretText("t")
			s.VerifyToken, s.Handshakes, s.Answers = &token, []string{"slack"}, []relay.OfflineAnswer{{Status: 200}}
			s.ResponseTimeout, s.Retention = ptr(time.Second), ptr(time.Hour)
			if err := record.SetSetting(&s, key, value); err != nil {
				t.Errorf("%s=%v: %v", key, value, err)
			}
			left := map[string]bool{
				"verifyToken": s.VerifyToken != nil, "responseTimeout": s.ResponseTimeout != nil, "retention": s.Retention != nil,
				"handshakes": len(s.Handshakes) > 0, "answers": len(s.Answers) > 0,
			}
			for other, kept := range left {
				if kept != (other != key) {
					t.Errorf("%s=%q: %s is kept: %v", key, value, other, kept)
				}
			}
		}
	}
}

func TestSetSettingRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key   string
		value any
	}{
		{"offlineStatus", float64(199)},
		{"offlineStatus", 600},
		{"offlineStatus", 202.5},
		{"offlineStatus", true},
		{"offlineStatus", "x"},
		{"offlineStatus", nil},
		{"autoDeliver", "maybe"},
		{"autoDeliver", 1},
		{"autoDeliver", nil},
		{"hostHeader", ""},
		{"hostHeader", "null"},
		{"hostHeader", "default"},
		{"hostHeader", "a b"},
		{"hostHeader", "a\r\nX: y"},
		{"hostHeader", "http://x"},
		{"hostHeader", nil},
		{"hostHeader", "ü"},
		{"hostHeader", "Rewrite"},
		{"hostHeader", "x:y"},
		{"hostHeader", "x:65536"},
		{"hostHeader", "[::1"},
		{"hostHeader", true},
		{"hostHeader", 3000},
		{"responseTimeout", "2h"},
		{"responseTimeout", "0s"},
		{"responseTimeout", "1ns"}, // the store has microseconds, so the duration would become 0
		{"responseTimeout", "-1s"},
		{"responseTimeout", float64(3)},
		{"responseTimeout", "soon"},
		{"retention", "off"},
		{"retention", true},
		{"owner", "bob"},
		{"Paused", true},
		{"", nil},
		{"x\n\x1b", nil},
	} {
		s := relay.DefaultSettings()
		err := record.SetSetting(&s, tt.key, tt.value)
		var e *relay.Error
		if !errors.As(err, &e) || e.Code != relay.CodeValidationFailed || len(e.Fields) != 1 {
			t.Errorf("%s=%v: %v", tt.key, tt.value, err)
		}
		if !reflect.DeepEqual(s, relay.DefaultSettings()) {
			t.Errorf("%s=%v changed something: %+v", tt.key, tt.value, s)
		}
	}
}

func TestSettingsSurviveTheirOutwardForm(t *testing.T) {
	t.Parallel()
	want := relay.DefaultSettings()
	want.Retention, want.Paused, want.OfflineStatus = ptr(36*time.Hour), true, 503
	b, err := json.Marshal(record.OfSettings(want))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := json.Unmarshal(b, &values); err != nil {
		t.Fatal(err)
	}
	got := relay.DefaultSettings()
	for key, value := range values {
		if err := record.SetSetting(&got, key, value); err != nil {
			t.Fatal(err)
		}
	}
	if *got.Retention != *want.Retention || got.Paused != want.Paused || got.OfflineStatus != want.OfflineStatus {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestEverySettingIsInTheTable: SettingTexts has every setting of the API. ChangedSettings names the changed
// ones, and never shows a token.
func TestEverySettingIsInTheTable(t *testing.T) {
	t.Parallel()
	d := relay.DefaultSettings()
	texts := record.SettingTexts(&d)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[record.Settings]()) {
		key := field.Tag.Get("json")
		if key == "-" || field.Anonymous {
			continue
		}
		if _, known := texts[key]; !known {
			t.Errorf("%s is missing", key)
		}
	}
	changed := d
	month := 30 * 24 * time.Hour
	changed.Retention, changed.Paused = &month, true
	if got, want := record.ChangedSettings(&d, &changed), "retention the server's -> 30d, paused off -> on"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	none, one, other := d, d, d
	for text, to := range map[string]*relay.Settings{"a": &one, "b": &other} {
		if err := record.SetSetting(to, "verifyToken", text); err != nil {
			t.Error(err)
		}
	}
	got := record.ChangedSettings(&none, &one) + "; " + record.ChangedSettings(&one, &other) + "; " + record.ChangedSettings(&other, &none) + "; " + record.ChangedSettings(&one, &one)
	if want := "verifyToken none -> a new one; verifyToken kept -> a new one; verifyToken kept -> none; "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
