package record_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/record"
)

func TestFilterWords(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]relay.Filter{
		"": {},
		`status:5xx type:invoice.* data.object.id=pi_1 "exact text"`: {
			Status: "5xx", Type: "invoice.*", JSON: []relay.FieldFilter{{Path: []string{"data", "object", "id"}, Value: "pi_1"}},
			Texts: []relay.TextFilter{{Text: "exact text", Exact: true}},
		},
		"two words":                   {Texts: []relay.TextFilter{{Text: "two"}, {Text: "words"}}},
		"method:post state:queued":    {Method: "POST", State: "queued"},
		"replayed:true":               {Replayed: new(true)},
		"status:999":                  {Status: "999"},
		"replayed:false status:error": {Replayed: new(false), Status: "error"},
		"pinned:true label:bug-*":     {Pinned: new(true), Label: "bug-*"},
		"provider:stripe alias:a":     {Provider: "stripe", Alias: "a"},
		`path:"/a b"`:                 {Path: "/a b"},
		`path:/q?a=1&b="2 3"`:         {Path: "/q?a=1&b=2 3"},
		`name="John \"J\" Smith"`:     {JSON: []relay.FieldFilter{{Path: []string{"name"}, Value: `John "J" Smith`}}},
		`["a.b"].x=1`:                 {JSON: []relay.FieldFilter{{Path: []string{"a.b", "x"}, Value: "1"}}},
		"$.items[0].id=x":             {JSON: []relay.FieldFilter{{Path: []string{"items", "0", "id"}, Value: "x"}}},
		"$ref=x $.$type=y": {JSON: []relay.FieldFilter{
			{Path: []string{"$ref"}, Value: "x"}, {Path: []string{"$type"}, Value: "y"},
		}},
		"json:status=ok":             {JSON: []relay.FieldFilter{{Path: []string{"status"}, Value: "ok"}}},
		"a=":                         {JSON: []relay.FieldFilter{{Path: []string{"a"}, Value: ""}}},
		"https://x.example/y 10:30":  {Texts: []relay.TextFilter{{Text: "https://x.example/y"}, {Text: "10:30"}}},
		`"status:5xx"`:               {Texts: []relay.TextFilter{{Text: "status:5xx", Exact: true}}},
		`Error: ""`:                  {Texts: []relay.TextFilter{{Text: "Error:"}}},
		"q:text":                     {Texts: []relay.TextFilter{{Text: "text"}}},
		`\"open`:                     {Texts: []relay.TextFilter{{Text: `"open`}}},
		`q:"Text"`:                   {Texts: []relay.TextFilter{{Text: "Text", Exact: true}}},
		"since:2026-11-21":           {Since: day},
		"until:2026-11-21T00:00:00Z": {Until: day},
	} {
		got, err := record.ParseFilterWords(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
		again, err := record.ParseFilterWords(record.FilterWords(got))
		if d := cmp.Diff(got, again); d != "" || err != nil {
			t.Errorf("%s as words is %s: %v\n%s", text, record.FilterWords(got), err, d)
		}
		again, err = record.ParseFilter(record.FilterValues(got))
		if d := cmp.Diff(got, again); d != "" || err != nil {
			t.Errorf("%s as a query is %s: %v\n%s", text, record.FilterValues(got).Encode(), err, d)
		}
	}
}

// A name with = in quotes is one step of the path.
func TestFieldFilterWithAnEqualsSign(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]relay.FieldFilter{
		`["a=b"]=x=y`:        {Path: []string{"a=b"}, Value: "x=y"},
		`d["\"=\"]="].n=1=2`: {Path: []string{"d", `"="]=`, "n"}, Value: "1=2"},
		`a.b=`:               {Path: []string{"a", "b"}},
	} {
		f, err := record.ParseFilter(url.Values{"json": {text}})
		if d := cmp.Diff(relay.Filter{JSON: []relay.FieldFilter{want}}, f); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, d)
		}
		if again, err := record.ParseFilter(record.FilterValues(f)); err != nil || !cmp.Equal(f, again) {
			t.Errorf("%s again: %+v, %v", text, again, err)
		}
	}
	for _, text := range []string{`["a=b"]`, `=x`, `a["b=c=d`} {
		if f, err := record.ParseFilter(url.Values{"json": {text}}); err == nil {
			t.Errorf("%s is %+v", text, f)
		}
	}
}

// A misspelled filter is an error that names the filter and the most similar known one.
func TestFilterMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"stauts:5xx":                        "stauts: there is no such filter; did you mean status?",
		"foo:bar":                           "in double quotes it is text",
		"status:":                           "status: a value is missing",
		"status:5x":                         "did you mean 5xx?",
		"status:9xx":                        "expected a status such as 404, a class such as 2xx, or error",
		"status:2XX":                        "did you mean 2xx?",
		"status:eror":                       "did you mean error?",
		"state:quued":                       "did you mean queued?",
		"provider:strpe":                    "did you mean stripe?",
		"pinned:yes":                        "pinned: expected true or false",
		"label:*x":                          "a * may stand at the end only",
		"replayed:ture":                     "did you mean true?",
		"type:*.paid":                       "a * may stand at the end only",
		"status:404 status:500":             "status: it is given more than once",
		"status=500":                        "write status:500 for the filter, or json:status=500",
		"since:yesterdayish":                "since: expected a time",
		`"open`:                             "a double quote is not closed",
		"..a=b":                             "json: expected a field",
		"json:novalue":                      "json: expected a field",
		"path:" + strings.Repeat("x", 1001): "longer than 1000 bytes",
		strings.Repeat("a=1 ", 17):          "more than 16",
		strings.Repeat("x ", 17):            "more than 16",
		strings.Repeat("x", 16_001):         "too long",
	} {
		_, err := record.ParseFilterWords(text)
		e := relay.AsError(err)
		if err == nil || e.Code != relay.CodeValidationFailed || !strings.Contains(e.Detail, want) || len(e.Fields) != 1 || !strings.HasPrefix(e.Fields[0].Location, "query.") {
			t.Errorf("%.60s: %+v, want %s", text, e, want)
		}
	}
	if _, err := record.ParseFilterWords("json:novalue"); relay.AsError(err).Fields[0].Value != "novalue" {
		t.Errorf("the value in question is not named: %+v", err)
	}
	for name, want := range map[string]string{"curser": "did you mean cursor?", "Status": "did you mean status?", "zzzzzzzz": "there is no such filter"} {
		if _, err := record.ParseFilter(url.Values{name: {"1"}}, "cursor", "limit"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if f, err := record.ParseFilter(url.Values{"cursor": {"x"}, "status": {""}, "q": {"a", "b"}}, "cursor"); err != nil || f.Status != "" || len(f.Texts) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestSinceIsADurationBeforeNow(t *testing.T) {
	t.Parallel()
	f, err := record.ParseFilterWords("since:24h")
	if ago := time.Since(f.Since); err != nil || ago < 24*time.Hour || ago > 25*time.Hour {
		t.Errorf("since:24h is %v, %v", f.Since, err)
	}
}

func TestCompleteFilter(t *testing.T) {
	t.Parallel()
	seen := map[string][]string{"type": {"invoice.paid", "invoice.failed"}, "provider": {"github"}}
	for text, want := range map[string]string{
		"sta":            "status: state:",
		"status:5xx ty":  "type:",
		"type:invoice":   "type:invoice.paid type:invoice.failed",
		"type:INVOICE.P": "type:invoice.paid",
		"state:que":      "state:queued",
		"provider:git":   "provider:github provider:gitea provider:gitlab",
		"zzz":            "",
		"path:/h":        "",
	} {
		start, words := record.CompleteFilter(text, seen)
		if got := strings.Join(words, " "); got != want || start != strings.LastIndexByte(text, ' ')+1 {
			t.Errorf("%s: %d, %s, want %s", text, start, got, want)
		}
	}
}

// TestMatchSummary: the summary of an event is enough to decide (Hit or Miss), unless the filter looks into
// headers or bodies (Unknown).
func TestMatchSummary(t *testing.T) {
	t.Parallel()
	arrived := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	e := relay.Event{
		ID: idAt(arrived), Alias: "hooks", Method: "POST", Target: []byte("/caf\xc3\xa9/\xff?x=1"), State: relay.StateDelivered, Status: 500, AttemptCount: 2,
		Provider: relay.Provider{Name: "stripe", EventType: "invoice.paid"}, LastReceivedAt: arrived.Add(time.Hour),
	}
	queued := relay.Event{ID: idAt(arrived), Alias: "hooks", Method: "GET", Target: []byte("/"), State: relay.StateQueued, AttemptCount: 1}
	site := relay.Site{}
	for _, c := range []struct {
		event *relay.Event
		words string
		want  record.Verdict
	}{
		{&e, "", record.Hit},
		{&e, "alias:hooks method:post status:500 state:delivered provider:stripe type:invoice.paid replayed:true", record.Hit},
		{&e, "status:5xx", record.Hit},
		{&e, "status:error", record.Hit},
		{&e, "status:404", record.Miss},
		{&e, "type:invoice.*", record.Hit},
		{&e, "type:*", record.Hit},
		{&e, "type:invoice", record.Miss},
		{&e, "type:charge.*", record.Miss},
		{&e, "replayed:false", record.Miss},
		{&e, "alias:other", record.Miss},
		{&e, "provider:github", record.Miss},
		{&e, "path:/café/", record.Hit},
		{&e, "path:/cafe", record.Miss},
		{&e, "since:2026-11-21T12:00:00Z until:2026-11-21T12:00:01Z", record.Hit},
		{&e, "since:2026-11-21T12:00:01Z", record.Miss},
		{&e, "until:2026-11-21T12:00:00Z", record.Miss},
		{&e, "CAFÉ", record.Hit},
		{&e, `"CAFÉ"`, record.Unknown},
		{&e, "body", record.Unknown},
		{&e, "body status:404", record.Miss},
		{&e, "a.b=c", record.Unknown},
		{&queued, "status:error", record.Miss},
		{&queued, "status:2xx", record.Miss},
		{&queued, "type:*", record.Miss},
		{&queued, "state:queued replayed:false", record.Hit},
	} {
		f, err := record.ParseFilterWords(c.words)
		if err != nil {
			t.Fatalf("%s: %v", c.words, err)
		}
		if got := record.MatchSummary(&f, record.Summarise(c.event, site, arrived)); got != c.want {
			t.Errorf("%s: %v, want %v", c.words, got, c.want)
		}
	}
}

func idAt(at time.Time) (id relay.ID) {
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}

// FuzzFilter: FilterWords and FilterValues write a filter so that the same filter is parsed from the result.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"status:5xx a.b=c \"x y\"", `["a]b"].c="d e"`, "since:2026-11-21", "\x00\xff q:\"a\\\"b\"", "a==b", "$[0]=\"", `path:"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := record.ParseFilterWords(text)
		if err != nil {
			return
		}
		words, values := record.FilterWords(got), record.FilterValues(got)
		if again, err := record.ParseFilterWords(words); err != nil || !cmp.Equal(got, again) {
			t.Errorf("%q as words is %q: %v\n%s", text, words, err, cmp.Diff(got, again))
		}
		if again, err := record.ParseFilter(values); err != nil || !cmp.Equal(got, again) {
			t.Errorf("%q as a query is %q: %v\n%s", text, values.Encode(), err, cmp.Diff(got, again))
		}
		record.CompleteFilter(text, nil)
	})
}

func TestSplitFilterWords(t *testing.T) {
	for typed, want := range map[string]struct {
		named []string
		text  string
	}{
		"":                                       {nil, ""},
		"boom":                                   {nil, "boom"},
		`status:5xx boom "Two words"`:            {[]string{"status:5xx"}, `boom "Two words"`},
		`a type:invoice.* label:"x y" data.id=1`: {[]string{"type:invoice.*", `label:"x y"`, "data.id=1"}, "a"},
		`https://a.test/x`:                       {nil, "https://a.test/x"},
		`statsu:500 a`:                           {nil, "statsu:500 a"},
		`status:5xx "open`:                       {nil, `status:5xx "open`},
	} {
		if named, text := record.SplitFilterWords(typed); !slices.Equal(named, want.named) || text != want.text {
			t.Errorf("%q: %q and %q", typed, named, text)
		}
	}
}
