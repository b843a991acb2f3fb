package spool

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"relay"
)

var update = flag.Bool("update", false, "add the steps of new formats to the golden file")

// goldenSteps returns steps of each format, and for each step the name of its line in the golden file.
func goldenSteps(t *testing.T) (names []string, steps []*Step) {
	at := time.Date(2026, 11, 28, 12, 0, 0, 123456000, time.UTC)
	id := relay.ID{1, 0x93, 0, 0, 0, 0, 0x70, 1, 0x80, 2, 3, 4, 5, 6, 7, 8}
	body := func(text string) relay.Body {
		return relay.Body{Data: []byte(text), Stored: int64(len(text)), Size: int64(len(text)), SHA256: [32]byte{31: 9}, State: relay.BodyComplete}
	}
	attempt := func() *relay.Attempt {
		same := true
		return &relay.Attempt{
			N: 1, Kind: relay.KindOriginal, State: relay.StateFailed, ReceivedAt: at, StartedAt: at.Add(1000), EndedAt: at.Add(time.Second),
			Actor: "user:alice", Error: &relay.Fault{Code: relay.CodeLocalTimeout, Message: "no answer"}, Released: true, Position: 3,
			Connection: "kept", SentHead: []byte("POST / HTTP/1.1\r\n\r\n"), Identical: &same,
			Timing:    relay.Timing{Blocked: 1, Connect: 2, Send: 3, Wait: 4, Receive: 5},
			HasTiming: true, HasResponse: true, Status: 200, Interim: [][]byte{[]byte("HTTP/1.1 103\r\n\r\n"), {}},
			ResponseState: relay.ResponseCut, Response: relay.Message{Head: []byte("HTTP/1.1 200 OK\r\n\r\n"), Body: body("ok")},
		}
	}
	event := func() *relay.Event {
		return &relay.Event{
			ID: id, AliasID: 7, Alias: "shop", ReceivedAt: at, LastReceivedAt: at.Add(time.Second), Remote: netip.MustParseAddrPort("[2001:db8::1]:443"),
			TLS: true, Method: "POST", Target: []byte("/a?b"), HTTPMinor: 1, Host: "shop.localhost",
			Provider: relay.Provider{Name: "github", EventType: "push", DeliveryID: "d", SignedAt: at, Tolerance: time.Minute},
			State:    relay.StateDelivered, Status: 204, Latency: time.Millisecond, HasLatency: true, AttemptCount: 1,
			Request:        relay.Message{Head: []byte("POST /a?b HTTP/1.1\r\n\r\n"), Lines: []byte("2\r\n"), Framing: 2, Body: body("hi")},
			ForwardedLines: []byte("X-Forwarded-For: ::1\r\n"), Attempts: []relay.Attempt{*attempt()},
		}
	}
	add := func(name string, st *Step) {
		st.ID = id
		names, steps = append(names, name), append(steps, st)
	}
	add("accept", &Step{Kind: Accept, Event: event()})
	add("chunk", &Step{Kind: Chunk, N: 2, I: 3, Data: []byte("part")})
	add("amend", &Step{Kind: Amend, Event: &relay.Event{
		ID: id, Request: relay.Message{Head: []byte("h"), Body: relay.Body{Parts: 4, Size: 1 << 20, State: relay.BodyComplete}},
	}})
	add("finish", &Step{Kind: Finish, Attempt: attempt(), State: relay.StateIncomplete})
	add("requeue", &Step{Kind: Requeue, N: 5, State: "held"})
	gone := attempt()
	gone.CallerGone = true
	add("finish of an attempt whose caller had left", &Step{Kind: Finish, Attempt: gone})
	e := event()
	e.Attempts[0].CallerGone = true
	add("accept of an attempt whose caller had left", &Step{Kind: Accept, Event: e})
	e = event()
	e.Sent = &relay.Sent{Actor: "user:alice", MadeFrom: "evt_1", SignedBy: "sec_1", Changes: []string{"method", "path"}}
	add("accept of a sent event", &Step{Kind: Accept, Event: e})
	e = event()
	e.Signature = &relay.Signature{Provider: "stripe", Verdict: "valid", Reason: "r", Message: "m", SignedAt: at, SecretID: "sec_1"}
	add("accept of a signed event", &Step{Kind: Accept, Event: e})
	e = event()
	e.Handshake, e.Attempts[0].Handshake = "slack", "slack"
	add("accept of a challenge that was answered", &Step{Kind: Accept, Event: e})
	e = event()
	e.MissedHandshake = "slack"
	add("accept of a challenge that was not answered", &Step{Kind: Accept, Event: e})
	answered := attempt()
	answered.Handshake = "slack"
	add("finish of a challenge", &Step{Kind: Finish, Attempt: answered})
	add("amend of a signed event", &Step{
		Kind: Amend, Event: &relay.Event{
			ID: id, Request: relay.Message{Head: []byte("h"), Body: body("hi")},
			Signature: &relay.Signature{Provider: "stripe", Verdict: "valid", Reason: "r", Message: "m", SignedAt: at, SecretID: "sec_1"},
		},
	})
	for _, f := range taggedFields {
		accepted, amended := event(), &relay.Event{ID: id, Request: relay.Message{Head: []byte("h"), Body: body("hi")}}
		for _, e := range []*relay.Event{accepted, amended} {
			field := reflect.ValueOf(e).Elem().Field(f.index)
			fill(t, rand.New(rand.NewPCG(1, 2)), field)
			if field.Kind() == reflect.Bool {
				field.SetBool(true) // fill may leave it false, which needs no newer format
			}
		}
		name := reflect.TypeFor[relay.Event]().Field(f.index).Name
		add("accept with "+name, &Step{Kind: Accept, Event: accepted})
		add("amend with "+name, &Step{Kind: Amend, Event: amended})
	}
	return names, steps
}

// Steps in the spool of an earlier relayd can be read, and an earlier relayd can read steps
// without new fields. A line of the golden file is never changed; new fields get new lines, which -update adds.
func TestGoldenSteps(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/steps.txt")
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string][]byte{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, data, _ := strings.Cut(lines.Text(), ": ")
		if golden[name], err = hex.DecodeString(data); err != nil {
			t.Fatal(name, err)
		}
	}
	names, steps := goldenSteps(t)
	formats := map[byte]bool{}
	for i, name := range names {
		got := appendStep(nil, steps[i])
		if *update && golden[name] == nil {
			golden[name], text = got, fmt.Appendf(text, "%s: %x\n", name, got)
		}
		if !bytes.Equal(got, golden[name]) {
			t.Errorf("not as in the golden file:\n%s: %x", name, got)
			continue
		}
		formats[got[0]] = true
		st, err := parseStep(golden[name])
		if diff := cmp.Diff(steps[i], st, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || err != nil {
			t.Error(name, err, diff)
		}
	}
	if *update {
		if err := os.WriteFile("testdata/steps.txt", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(golden) != len(names) {
		t.Errorf("%d lines for %d steps", len(golden), len(names))
	}
	for format := byte(1); format <= newestFormat; format++ {
		if !formats[format] {
			t.Errorf("no step of format %d", format)
		}
	}
}
