package record_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"relay"
	"relay/record"
)

func TestHandshakesSetting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  string
	}{
		{[]any{"slack", "graph"}, "slack graph"}, {"slack,graph", "slack graph"}, {" all ", "all"}, {"", ""}, {"off", ""}, {nil, ""}, {[]any{}, ""},
	} {
		s := relay.DefaultSettings()
		s.Handshakes = []string{"x"}
		if err := record.SetSetting(&s, "handshakes", c.value); err != nil || strings.Join(s.Handshakes, " ") != c.want || s.Handshakes == nil {
			t.Errorf("%v: %q, %v", c.value, s.Handshakes, err)
		}
	}
	for _, value := range []any{"slak", []any{"slack", "slack"}, []any{1}, 5, true, map[string]any{}} {
		s := relay.DefaultSettings()
		if err := record.SetSetting(&s, "handshakes", value); err == nil || !reflect.DeepEqual(s, relay.DefaultSettings()) {
			t.Errorf("%v was taken", value)
		}
	}
}

func TestAnswersSetting(t *testing.T) {
	t.Parallel()
	many := "[" + strings.TrimSuffix(strings.Repeat("{},", 21), ",") + "]"
	line := func(name, value string) string {
		b, _ := json.Marshal([]map[string]any{{"headers": [][]string{{name, value}}}})
		return string(b)
	}
	body := func(encoding, data string, status int) string {
		b, _ := json.Marshal([]map[string]any{{"status": status, "body": map[string]string{"encoding": encoding, "data": data}}})
		return string(b)
	}
	for name, c := range map[string]struct {
		value string
		ok    bool
	}{
		"none": {"", true}, "null": {"null", true}, "empty": {"[]", true}, "defaults": {"[{}]", true}, "example": {record.ExampleAnswers, true},
		"20": {strings.Replace(many, "{},", "", 1), true}, "21": {many, false},
		"line": {line("X-A", "b c"), true}, "16 KiB": {body("utf8", strings.Repeat("x", 16<<10), 200), true}, "more": {body("utf8", strings.Repeat("x", 16<<10+1), 200), false},
		"base64": {body("base64", "AAE=", 200), true}, "no base64": {body("base64", "AAE", 200), false}, "encoding": {body("latin1", "x", 200), false},
		"a NUL": {body("utf8", "\x00", 200), false}, "204 with a body": {body("utf8", "x", 204), false}, "204": {body("utf8", "", 204), true},
		"205 with a body": {body("utf8", "x", 205), false}, "205": {body("utf8", "", 205), true}, "304 with a body": {body("utf8", "x", 304), false}, "304": {body("utf8", "", 304), true},
		"content-length": {line("Content-length", "1"), false}, "transfer-encoding": {line("Transfer-Encoding", "chunked"), false}, "connection": {line("connection", "close"), false},
		"trailer": {line("Trailer", "X"), false}, "upgrade": {line("Upgrade", "h2c"), false}, "cookie": {line("Set-Cookie", "a=b"), false}, "cookie of a request": {line("COOKIE", "a=b"), false},
		"relay line": {line("relay-event", "x"), false}, "relay line in capitals": {line("Relay-Event", "x"), false}, "no token": {line("X A", "b"), false}, "no name": {line("", "b"), false}, "CRLF": {line("X-A", "b\r\nSet-Cookie: c"), false},
		"method": {`[{"method":"PO ST"}]`, false}, "any method": {`[{"method":null}]`, true}, "path": {`[{"pathPrefix":"hooks"}]`, false}, "path with a space": {`[{"pathPrefix":"/a b"}]`, false},
		"status 101": {`[{"status":101}]`, false}, "status 600": {`[{"status":600}]`, false}, "unknown member": {`[{"template":"x"}]`, false}, "no list": {`{}`, false}, "two lists": {`[] []`, false},
	} {
		s := relay.DefaultSettings()
		err := record.SetSetting(&s, "answers", c.value)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !reflect.DeepEqual(s, relay.DefaultSettings()) {
			t.Errorf("%s changed something", name)
		}
		if err == nil { // the setting is the same after it was written as text or as JSON and read again
			again, outward := relay.DefaultSettings(), relay.DefaultSettings()
			b, _ := json.Marshal(record.OfSettings(s))
			var values map[string]any
			_ = json.Unmarshal(b, &values)
			if err := record.SetSetting(&again, "answers", record.SettingTexts(&s)["answers"]); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("%s: %v, %+v", name, err, again)
			}
			if err := record.SetSetting(&outward, "answers", values["answers"]); err != nil || !reflect.DeepEqual(outward, s) {
				t.Errorf("%s: %v, %+v", name, err, outward)
			}
		}
	}
}

func TestChangedAnswers(t *testing.T) {
	t.Parallel()
	was, is := relay.DefaultSettings(), relay.DefaultSettings()
	is.Handshakes = []string{"slack"}
	is.Answers = []relay.OfflineAnswer{{PathPrefix: "/secret", Status: 200}}
	if got := record.ChangedSettings(&was, &is); got != "handshakes none -> slack, answers 0 answers -> 1 answer" {
		t.Error(got)
	}
}
