package record

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record/body"
	"relay/relaytest"
	"relay/wire"
)

// worstEvent returns an event with the given header lines, target and body.
func worstEvent(lines, target, kind string, body []byte) *relay.Event {
	message := func(start string) relay.Message {
		return relay.Message{
			Head:    []byte(start + "Host: a\r\nContent-Type: " + kind + "\r\n" + lines + "\r\n\r\n"),
			Framing: relay.FramingLength,
			Body:    relay.Body{State: relay.BodyComplete, Size: int64(len(body)), Stored: int64(len(body)), Data: body},
		}
	}
	return &relay.Event{
		Alias: "a", Method: "POST", Target: []byte(target), Host: "a", HTTPMinor: 1, State: relay.StateDelivered, Remote: netip.MustParseAddrPort("127.0.0.1:1"),
		Request: message("POST " + target + " HTTP/1.1\r\n"),
		Attempts: []relay.Attempt{{
			N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, HasResponse: true, Status: 200, Response: message("HTTP/1.1 200 OK\r\n"),
			Interim: [][]byte{[]byte("HTTP/1.1 103 Early\r\n" + lines + "\r\n\r\n")},
		}},
	}
}

func ofBody(kind string, body []byte) *relay.Event { return worstEvent("", "/", kind, body) }

const formType, multipartType = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"

// TestWorstBytes: for 1 MiB of hostile input, or for the largest input that callers can send, no function of
// this package takes more than 100 ms.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	// A head has at most 128 KiB, its target 16 KiB. Some functions get at most half of most, because
	// worstEvent puts the body into both the request and the response.
	const most, head, target = 1 << 20, 128 << 10, 16 << 10
	now, site := time.Now(), relay.Site{AliasDomain: "localhost"}
	share := relay.Share{View: true}
	for _, c := range []struct {
		name string
		most int // largest input of the function in bytes
		f    func(p []byte)
	}{
		{"share of a body", most / 2, func(p []byte) { _, _ = OfShared(t.Context(), ofBody("text/plain", p), share, true) }},
		{"share of a target", target, func(p []byte) { _, _ = OfShared(t.Context(), worstEvent("", "/?"+string(p), "a/b", nil), share, true) }},
		{"share of header lines", head, func(p []byte) { _, _ = OfShared(t.Context(), worstEvent(string(p), "/", "a/b", nil), share, true) }},
		{"share of a media type", head, func(p []byte) { _, _ = OfShared(t.Context(), ofBody(string(p), []byte("a=b")), share, true) }},
		{"record", most / 2, func(p []byte) { Of(ofBody("application/json", p), site, now) }},
		{"record of header lines", head, func(p []byte) { Of(worstEvent(string(p), "/", "a/b", nil), site, now) }},
		{"text of a body", most / 2, func(p []byte) { EventText(Of(ofBody("text/plain", p), site, now)) }},
		{"text of header lines", head, func(p []byte) {
			EventText(Of(worstEvent(string(p), "/"+string(p[:min(len(p), target)]), "a/b", nil), site, now))
		}},
		{"line", target, func(p []byte) { _ = EventLine(&Of(worstEvent("", string(p), "a/b", nil), site, now).Summary).String() }},
		{"safe text", most, func(p []byte) { SafeText(string(p)) }},
		{"safe text, cut", most, func(p []byte) { SafeTextMax(string(p), 4096) }},
		{"safe JSON", most, func(p []byte) { text, _ := json.Marshal(string(p)); SafeJSON(text) }},
		{"curl", most / 2, func(p []byte) { CURL(ofBody("text/plain", p), site) }},
		{"curl of header lines", head, func(p []byte) { CURL(worstEvent(string(p), "/"+string(p[:min(len(p), target)]), "a/b", nil), site) }},
		{"Go", most / 2, func(p []byte) { _, _ = Export(ofBody("a/b", p), "go", site, "1", now, MaxJSON) }},
		{"JavaScript of header lines", head, func(p []byte) { _, _ = Export(worstEvent(string(p), "/", "a/b", nil), "js", site, "1", now, MaxJSON) }},
		{"HAR", most / 2, func(p []byte) { HAROf(ofBody(formType, p), site, "1", MaxJSON) }},
		{"HAR of a target", target, func(p []byte) { HAROf(worstEvent("", "/?"+string(p), "a/b", nil), site, "1", MaxJSON) }},
		{"HAR of header lines", head, func(p []byte) { HAROf(worstEvent(string(p), "/", "a/b", nil), site, "1", MaxJSON) }},
		{"provider", head, func(p []byte) { Recognise(append([]byte("POST / HTTP/1.1\r\n"), p...), p) }},
		{"provider with its type in a body", most, func(p []byte) {
			for _, mark := range []string{"Stripe-Signature: t=1", "X-Slack-Signature: v0", "Svix-Signature: a\r\nSvix-Id: a"} {
				Recognise([]byte("POST / HTTP/1.1\r\n"+mark+"\r\n\r\n"), p)
			}
		}},
		{"time of a signature", head, func(p []byte) { Recognise([]byte("POST / HTTP/1.1\r\nStripe-Signature: "+string(p)+"\r\n\r\n"), nil) }},
		{"refused Host", most, func(p []byte) {
			for _, status := range []int{200, 302, 400, 403, 422} {
				RefusedBy(status, []byte("HTTP/1.1 200 OK\r\nLocation: https://a/\r\n\r\n"), p)
			}
		}},
		{"redirect", head, func(p []byte) { RedirectTo(301, []byte("A: b\r\nLocation: https://"+string(p)+"\r\n\r\n")) }},
		{"field of JSON", most, matchWorst("application/json")},
		{"field of a form", most, matchWorst(formType)},
		{"field of multipart", most, matchWorst(multipartType)},
		{"text in a body", most, func(p []byte) {
			NewTextSearch([]relay.TextFilter{{Text: string(p[:min(len(p), maxFilterValue)]) + "x"}, {Text: "[[[[[[[[]"}, {Text: "aaaaaaaaaaaaaaaaaaaaaaaaaaaab", Exact: true}}).SearchBody(body.NewLabel(formType), p)
		}},
		{"text in a multipart body", most, func(p []byte) {
			NewTextSearch([]relay.TextFilter{{Text: "absent"}}).SearchBody(body.NewLabel(multipartType), p)
		}},
		{"filter words", maxFilterRepeat * maxFilterValue, func(p []byte) {
			if f, err := ParseFilterWords(string(p)); err == nil {
				FilterWords(f)
			}
			CompleteFilter(string(p), nil)
		}},
		{"filter of JSON", maxFilterValue, func(p []byte) {
			if f, err := ParseFilter(map[string][]string{"json": {string(p) + "=a", "a=" + string(p)}}); err == nil {
				FilterWords(f)
			}
		}},
		{"nearest word", most, func(p []byte) { Nearest(string(p), []string{"alias", "status", string(p[:min(len(p), 64)])}) }},
		{"live item", most, func(p []byte) { CompleteItem(&relay.FeedItem{Name: "event", Data: p}, "a-1") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, c.most, c.f)
		})
	}
}

// matchWorst returns a function that searches a body of the given media type for two fields.
func matchWorst(kind string) func(p []byte) {
	return func(p []byte) {
		MatchBody([]relay.FieldFilter{{Path: []string{"a", "a", "0"}, Value: "1"}, {Path: []string{"token"}, Value: "x"}}, body.NewLabel(kind), p, false, len(p))
	}
}

// neighbour is a way to change a text; the diffs compare the text with the result of the function of.
type neighbour struct {
	name string
	of   func(p []byte) []byte
}

func neighbours() []neighbour {
	list := []neighbour{
		{"with other numbers", func(p []byte) []byte { return bytes.ReplaceAll(p, []byte(":0"), []byte(":1")) }},
		{"with another first member", func(p []byte) []byte { return bytes.Replace(p, []byte(`{"b":7`), []byte(`{"b":8`), 1) }},
	}
	for i, name := range []string{"changed in its middle", "changed everywhere", "reversed", "turned round", "cut", "gone"} {
		list = append(list, neighbour{name, func(p []byte) []byte { return relaytest.Neighbours(p)[i] }})
	}
	return list
}

// TestWorstDiffs: the time to compare two bodies or two lists of header lines is proportional to their size,
// and the result for bodies is bounded.
func TestWorstDiffs(t *testing.T) {
	t.Parallel()
	shapes := append(relaytest.Worsts(),
		relaytest.Worst{Unit: `{"a":`, Close: "}", End: ""},
		relaytest.Worst{Begin: strings.Repeat(`{"a":`, 3000) + `{"z":0`, Unit: `,"k%d":0`, End: strings.Repeat("}", 3001)},
		relaytest.Worst{Begin: strings.Repeat(`[`, 3000) + `{"z":0`, Unit: `,"k%d":0`, End: "}" + strings.Repeat("]", 3000)},
		relaytest.Worst{Begin: `{"` + strings.Repeat("~", 10_000) + `":{"z":0`, Unit: `,"k%d":0`, End: "}}"},
		relaytest.Worst{Begin: "[0", Unit: `,[%d,{"id":1}]`, End: "]"},
		relaytest.Worst{Begin: `{"b":7`, Unit: `,"a":0`, End: "}"}, // one name many times, with the same values on both sides
	)
	const most = 512 << 10 // bytes of each of the two bodies
	for kind, compare := range map[string]func(was, is []byte) BodyDiff{
		"JSON": func(was, is []byte) (d BodyDiff) {
			if json.Valid(was) && json.Valid(is) {
				d = compareJSON(was, is)
			}
			return d
		},
		"text": compareText,
	} {
		for _, n := range neighbours() {
			t.Run(kind+" "+n.name, func(t *testing.T) {
				t.Parallel()
				relaytest.WorstShapes(t, most, shapes, func(p []byte) {
					d := compare(p, n.of(p))
					size := 0
					for _, c := range d.Changes {
						size += len(c.Text) + len(c.Value) + len(c.Old) + len(c.Field) + len(valueOf(c.Path)) + len(valueOf(c.From))
					}
					if size > diffBytes+8*len(p) {
						t.Errorf("two bodies of %d bytes have a comparison of %d", len(p), size)
					}
				})
			})
		}
	}
	for _, n := range neighbours() {
		t.Run("headers "+n.name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, 128<<10, func(p []byte) { // the limit for both heads together
				headerChanges(headersOf(wire.Fields(p)), headersOf(wire.Fields(n.of(p))), true)
			})
		})
	}
}
