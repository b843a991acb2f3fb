package record_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"relay"
	"relay/record"
	reading "relay/record/body"
)

func TestTextSearch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64<<10-3) + "NEEDLE"
	for _, c := range []struct {
		body, words string
		want        bool
	}{
		{`{"name":"Café"}`, "café", true},
		{`{"name":"Café"}`, "CAFÉ", true},
		{`{"name":"Café"}`, `"CAFÉ"`, false},
		{`{"name":"caf\u00e9"}`, "café", true},
		{`{"name":"CAF\u00C9"}`, "café", true},
		{`{"name":"caf\u00e9"}`, `"café"`, true},
		{`{"name":"caf\u00e9"}`, `"caf\\u00e9"`, true},
		{`{"url":"https:\/\/a.example\/b"}`, "https://a.example/b", true},
		{`{"m":"\ud83d\ude00!"}`, "😀!", true},
		{`{"m":"\ud83d"}`, `\ud83d`, true},
		{`{"q":"say \"hi\""}`, `"say \"hi\""`, true},
		{`ΣΊΣΥΦΟΣ`, "σίσυφος", true},
		{"nothing", "needle", false},
		{long, "needle", true},
		{long, `"NEEDLE"`, true},
		{long, `"needle"`, false},
		{long, "needle xne", true},
		{long, "needle absent", false},
		{strings.Repeat("x", 64<<10-2) + `\u00e9 end`, "é end", true},
		{strings.Repeat("x", 64<<10-1) + "é end", "É END", true},
		{strings.Repeat("x", 64<<10-7) + `\ud83d\ude00 end`, "😀 END", true},
		{"a\x00b\xffc", "B", true},
		{"tail\\", "tail", true},
		{"100% _x", "100%", true},
		{"100 xx", "100%", false},
	} {
		f, err := record.ParseFilterWords(c.words)
		if err != nil {
			t.Fatalf("%s: %v", c.words, err)
		}
		s := record.NewTextSearch(f.Texts)
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(c.body), "in small reads": iotest.HalfReader(strings.NewReader(c.body))} {
			s.Reset()
			if got, err := s.Body(reading.Label{}, r, 1<<20); got != c.want || err != nil {
				t.Errorf("%.40q, %s, %s: %v, %v", c.body, c.words, name, got, err)
			}
		}
	}
}

func TestMatchFields(t *testing.T) {
	t.Parallel()
	const body = `{"type":"invoice.paid","n":1.50,"ok":true,"none":null,"data":{"object":{"id":"pi_1","a.b":"dot","tags":["x","y"]}},
		"items":[{"id":"one"},{"id":"tw\u006f"},[{"id":"deep"}]],"dup":1,"dup":2,"":"empty","esc\u0061pe":"yes","text":"1"}`
	for words, want := range map[string]bool{
		"data.object.id=pi_1":              true,
		"data.object.id=pi_2":              false,
		"data.object.id=pi_":               false,
		"data.object=pi_1":                 false,
		"json:type=invoice.paid n=1.50":    true,
		"n=1.5":                            false,
		"ok=true none=null":                true,
		"ok=false":                         false,
		`data.object["a.b"]=dot`:           true,
		"data.object.a.b=dot":              false,
		"data.object.tags=y":               true,
		"data.object.tags[1]=y":            true,
		"data.object.tags.0=y":             false,
		"items.id=two":                     true,
		"items.1.id=two":                   true,
		"items.0.id=two":                   false,
		"items.id=deep":                    true,
		"items.9.id=two":                   false,
		"dup=1 dup=2":                      true,
		"escape=yes":                       true,
		"text=1":                           true,
		"missing=":                         false,
		"data.object.id=pi_1 items.id=one": true,
		"data.object.id=pi_1 items.id=no":  false,
	} {
		f, err := record.ParseFilterWords(words)
		if err != nil {
			t.Fatalf("%s: %v", words, err)
		}
		if got := record.MatchBody(f.JSON, reading.Label{}, []byte(body), false, 1<<20); got != want {
			t.Errorf("%s: %v", words, got)
		}
	}
	deep := strings.Repeat("[", 1_000_000)
	for _, hostile := range []string{"", "{", `{"a"`, `{"a":`, `{"a":"`, `{"a":"\`, "[", "[,", "{,", "}", `"`, deep, `{"a":` + deep, "\x00\xff"} {
		if record.MatchBody([]relay.FieldFilter{{Path: []string{"a"}, Value: "1"}}, reading.Label{}, []byte(hostile), false, 1<<20) {
			t.Errorf("%.20q matches", hostile)
		}
	}
}

func BenchmarkTextSearch(b *testing.B) {
	body := []byte(strings.Repeat(`{"id":"evt_1","name":"some ordinary webhook body","n":12345},`, 1000))
	for name, t := range map[string]relay.TextFilter{"folded": {Text: "needle"}, "exact": {Text: "needle", Exact: true}} {
		b.Run(name, func(b *testing.B) {
			s := record.NewTextSearch([]relay.TextFilter{t})
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				s.Reset()
				s.Search(body)
			}
		})
	}
}

// TestLiveMatcherReadsABoundedNumber: Match reads at most 20 events in a second, and then returns Unknown. It
// reads a selected event only once.
func TestLiveMatcherReadsABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, hit := 0, false
		m := &record.LiveMatcher{Filter: relay.Filter{Texts: []relay.TextFilter{{Text: "x"}}}, Look: func(context.Context, relay.ID) (bool, error) {
			reads++
			return hit, nil
		}}
		got := map[record.Verdict]int{}
		for range 30 {
			got[m.Match(t.Context(), &record.Summary{ID: id(t).String()})]++
		}
		if reads != 20 || got[record.Miss] != 20 || got[record.Unknown] != 10 {
			t.Errorf("%d reads, %v", reads, got)
		}
		time.Sleep(time.Second)
		reads, hit = 0, true
		found := &record.Summary{ID: id(t).String()}
		for range 30 {
			if m.Match(t.Context(), found) != record.Hit {
				t.Fatal("the event is not found")
			}
		}
		if reads != 1 {
			t.Errorf("one event was read %d times", reads)
		}
	})
}
