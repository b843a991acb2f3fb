package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"relay/cli"
	"relay/client"
	"relay/record"
)

// recordedScreen is a screen with its recorded output.
type recordedScreen struct {
	*upScreen
	out, talk strings.Builder
}

func newRecordedScreen(t *testing.T, mode string, aliases ...string) *recordedScreen {
	s := &recordedScreen{}
	var forwards []client.Forward
	for i, alias := range aliases {
		target, err := client.PortTarget(3000 + i)
		if err != nil {
			t.Fatal(err)
		}
		forwards = append(forwards, client.Forward{Alias: alias, Target: target})
	}
	s.upScreen = newScreen(&cli.Printer{Out: &s.out}, func(line string) { s.talk.WriteString(line + "\n") }, mode, forwards)
	return s
}

func (s *recordedScreen) receive(t *testing.T, line string) {
	t.Helper()
	m := &client.Message{}
	if err := json.Unmarshal([]byte(line), m); err != nil {
		t.Fatal(err)
	}
	var request struct {
		Event   *record.Summary
		Attempt *record.Attempt
	}
	if err := json.Unmarshal([]byte(line), &request); err != nil {
		t.Fatal(err)
	}
	m.Event, m.Attempt = request.Event, request.Attempt
	s.message(m)
}

const (
	helloLine   = `{"type":"hello","host":"example.com"}`
	onlineLine  = `{"type":"online","alias":"stripe-dev","url":"https://stripe-dev.example.com","queuedEvents":3}`
	requestLog  = `{"type":"request","event":{"id":"evt_1","method":"POST","path":"/hook","state":"delivered"},"attempt":{"number":1,"kind":"original","state":"delivered","startedAt":"2026-11-21T05:17:53.123Z","receivedAt":"2026-11-21T05:17:52.000Z","latencyMs":23.4,"response":{"status":200}}}`
	refusedLog  = `{"type":"request","event":{"id":"evt_2","method":"PO\u001b[2JST","path":"/a\u202e"},"attempt":{"number":2,"kind":"replay","receivedAt":"2026-11-21T05:17:52.000Z","latencyMs":0.4,"error":{"code":"local-refused","message":"x\ny"}}}`
	onlineLine2 = `{"type":"online","alias":"github-dev","url":"https://github-dev.example.com","queuedEvents":1}`
)

func TestTheFiveLines(t *testing.T) {
	t.Setenv("TZ", "UTC")
	s := newRecordedScreen(t, outputCompact, "stripe-dev")
	s.receive(t, helloLine)
	s.receive(t, onlineLine)
	s.connected(false)
	s.receive(t, requestLog)
	s.receive(t, refusedLog)
	at := time.Date(2026, 11, 21, 5, 17, 53, 0, time.UTC).Local()
	want := `Connected to relay example.com
Alias stripe-dev is online
Public URL    https://stripe-dev.example.com
Local target  http://127.0.0.1:3000
Press Ctrl+C to disconnect
3 events queued while offline; press R or run: relay replay-queued stripe-dev
` + at.Format(time.TimeOnly) + ` [200] POST /hook (23ms) evt_1
` + at.Add(-time.Second).Format(time.TimeOnly) + ` [502] PO\x1b[2JST /a\u202e (0ms) evt_2 attempt 2 (replay) local-refused: x\ny
`
	if s.out.String() != want {
		t.Errorf("stdout:\n%s\nwant:\n%s", &s.out, want)
	}
	if s.talk.Len() != 0 {
		t.Errorf("stderr: %s", &s.talk)
	}
}

func TestSeveralAliasesAreNamedInTheLog(t *testing.T) {
	t.Setenv("TZ", "UTC")
	s := newRecordedScreen(t, outputCompact, "stripe-dev", "github-dev")
	s.receive(t, strings.Replace(requestLog, `"id":"evt_1"`, `"id":"evt_1","alias":"github-dev"`, 1))
	if want := " [200] POST /hook (23ms) evt_1 alias github-dev\n"; !strings.HasSuffix(s.out.String(), want) {
		t.Errorf("%s", &s.out)
	}
}

// TestMissingRequestsAreSaidOnce: several messages about missing requests cause one warning, until the next
// request is shown.
func TestMissingRequestsAreSaidOnce(t *testing.T) {
	s := newRecordedScreen(t, outputCompact, "stripe-dev")
	for _, line := range []string{`{"type":"missed"}`, `{"type":"missed"}`, requestLog, `{"type":"missed"}`} {
		s.receive(t, line)
	}
	if want := strings.Repeat("some requests are not shown\n", 2); s.talk.String() != want {
		t.Errorf("said %q", s.talk.String())
	}
}

func TestSeveralAliasesAndReconnect(t *testing.T) {
	s := newRecordedScreen(t, outputQuiet, "stripe-dev", "github-dev.example.com")
	s.receive(t, helloLine)
	s.receive(t, onlineLine)
	s.receive(t, onlineLine2)
	s.connected(false)
	s.receive(t, requestLog)
	s.lost(errors.New("gone"), 0)
	s.lost(errors.New("gone"), time.Second) // this reason is printed once
	s.receive(t, helloLine)
	s.receive(t, strings.Replace(onlineLine, ":3}", ":0}", 1))
	s.receive(t, strings.Replace(onlineLine2, "1}", `1,"paused":true}`, 1))
	s.connected(true)
	s.receive(t, `{"type":"superseded","alias":"github-dev"}`)
	want := `Connected to relay example.com
Alias stripe-dev is online
Public URL    https://stripe-dev.example.com
Local target  http://127.0.0.1:3000
Alias github-dev is online
Public URL    https://github-dev.example.com
Local target  http://127.0.0.1:3001
Press Ctrl+C to disconnect
3 events queued while offline; press R or run: relay replay-queued stripe-dev
1 event queued while offline; press R or run: relay replay-queued github-dev
1 event queued while offline; press R or run: relay replay-queued github-dev
`
	if s.out.String() != want {
		t.Errorf("stdout:\n%s\nwant:\n%s", &s.out, want)
	}
	talk := `gone; connecting again
alias stripe-dev is online
alias github-dev is online
alias github-dev is paused: requests are queued until it is resumed in the dashboard
connected to the relay again
alias github-dev was taken over by a newer connection
`
	if s.talk.String() != talk {
		t.Errorf("stderr:\n%s\nwant:\n%s", &s.talk, talk)
	}
}

// TestRefusalThatMayPassIsTold: a transient refusal is printed once, even for a single alias, because the
// program waits and would seem to hang.
func TestRefusalThatMayPassIsTold(t *testing.T) {
	s := newRecordedScreen(t, outputCompact, "stripe-dev")
	s.receive(t, `{"type":"revoked","alias":"stripe-dev","message":"it is the error at the end"}`)
	for range 3 {
		s.receive(t, `{"type":"refused","alias":"stripe-dev","code":"store-unavailable","message":"the store is away"}`)
	}
	s.receive(t, onlineLine)
	s.receive(t, `{"type":"refused","alias":"stripe-dev","code":"not-found","message":"it is the error at the end"}`)
	if want := "alias stripe-dev was refused: the store is away; asking again\n"; s.talk.String() != want {
		t.Errorf("said %q", s.talk.String())
	}
}

func TestJSONOutputIsOneObjectALine(t *testing.T) {
	s := newRecordedScreen(t, outputJSON, "stripe-dev")
	lines := []string{helloLine, onlineLine, `{"type":"stale","alias":"` + "\u009b2J\u202e\U0001d173\x7fé" + `"}`}
	for _, line := range lines {
		s.receive(t, line)
	}
	s.connected(false)
	s.lost(errors.New("gone\x1b"), 250*time.Millisecond)
	s.local(client.TargetEvent{Kind: client.LocalDown, Alias: "stripe-dev", Target: "http://127.0.0.1:3000", Text: "down"})
	want := helloLine + "\n" + onlineLine + "\n" + `{"type":"stale","alias":"\u009b2J\u202e\ud834\udd73\u007fé"}
{"type":"ready","again":false,"aliases":[{"alias":"stripe-dev","target":"http://127.0.0.1:3000"}]}
{"type":"lost","message":"gone\u001b","retryInMs":250}
{"type":"local-down","alias":"stripe-dev","target":"http://127.0.0.1:3000","message":"down"}
`
	if s.out.String() != want {
		t.Errorf("stdout:\n%s\nwant:\n%s", &s.out, want)
	}
}
