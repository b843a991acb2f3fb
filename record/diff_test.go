package record_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
	"relay/relaytest"
)

// stored is a source of events in memory.
type stored map[relay.ID]*relay.Event

func (s stored) Request(_ context.Context, _ relay.Actor, id relay.ID, _ int) (*relay.Event, error) {
	if e := s[id]; e != nil {
		return e, nil
	}
	return nil, relay.ErrNotFound
}

func (s stored) Attempts(_ context.Context, _ relay.Actor, id relay.ID, _ relay.AttemptPage) ([]relay.Attempt, error) {
	return s[id].Attempts, nil
}

func (s stored) BodyPart(_ context.Context, id relay.ID, n, i int) ([]byte, error) {
	b := &s[id].Request.Body
	if n > 0 {
		b = &s[id].Attempts[n-1].Response.Body
	}
	if b.Parts == 0 {
		return b.Data, nil
	}
	return b.Data[i*relay.BodyPart : min(len(b.Data), (i+1)*relay.BodyPart)], nil
}

func message(start, headers, body string) relay.Message {
	m := relay.Message{Head: []byte(start + "\r\n" + headers + "\r\n")}
	m.Body = relay.Body{Data: []byte(body), Stored: int64(len(body)), Size: int64(len(body)), SHA256: sha256.Sum256([]byte(body)), State: relay.BodyComplete}
	if len(body) > relay.InlineBody {
		m.Body.Parts = (len(body) + relay.BodyPart - 1) / relay.BodyPart
	}
	return m
}

// answers returns an event with an attempt for each response; a response consists of header lines and a body.
func answers(list ...[2]string) (stored, relay.ID) {
	e := &relay.Event{ID: idAt(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)), Method: "POST", Target: []byte("/hook"), Request: message("POST /hook HTTP/1.1", "", "{}")}
	for i, a := range list {
		e.Attempts = append(e.Attempts, relay.Attempt{
			N: i + 1, HasResponse: true, Status: 200 + 300*i, Response: message("HTTP/1.1 200 OK", a[0], a[1]),
			HasTiming: true, Timing: relay.Timing{Wait: time.Duration(10*(i+1)) * time.Millisecond},
		})
	}
	return stored{e.ID: e}, e.ID
}

func diffOf(t *testing.T, left, right [2]string) *record.Diff {
	t.Helper()
	s, id := answers(left, right)
	d, err := record.ReadDiff(t.Context(), s, record.Compared{Event: s[id], N: 1}, record.Compared{Event: s[id], N: 2}, "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	isJSON, isText = "Content-Type: application/json\r\n", "Content-Type: text/plain\r\n"
	isForm         = "Content-Type: application/x-www-form-urlencoded\r\n"
)

// lines returns the changes of a body as text, one on each line.
func lines(d *record.Diff) string {
	var list []string
	for _, c := range d.Body.Changes {
		switch {
		case d.Body.Kind == record.DiffText:
			list = append(list, map[string]string{"add": "+", "remove": "-", "same": " ", "skip": "…"}[c.Op]+c.Text)
		case c.Op == "move":
			list = append(list, fmt.Sprintf("move %s %s", *c.From, *c.Path))
		default:
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Op, *c.Path, c.Old, c.Value)))
		}
	}
	return strings.Join(list, "\n")
}

func TestDiffOfResponses(t *testing.T) {
	t.Parallel()
	d := diffOf(t, [2]string{isJSON + "Date: now\r\nX-A: 1\r\nX-Old: o\r\n", `{"status":"open","n":1}`}, [2]string{isJSON + "Date: then\r\nX-A: 2\r\nX-New: n\r\n", `{"status":"paid","n":1}`})
	if want := "200 → 500, 3 header lines changed, 1 field changed, 10 ms slower"; d.Headline != want {
		t.Errorf("headline %q, want %q", d.Headline, want)
	}
	if d.Part != record.DiffResponse || *d.Status != (record.StatusChange{Left: 200, Right: 500}) || *d.LatencyMs != 10 || d.Request != nil {
		t.Errorf("%+v", d)
	}
	var got []string
	for _, h := range d.Headers {
		got = append(got, fmt.Sprint(h.Op, " ", h.Name, " ", h.Noise))
	}
	if want := "[replace Date true replace X-A false remove X-Old false add X-New false]"; fmt.Sprint(got) != want {
		t.Errorf("headers %v, want %s", got, want)
	}
	if want := `replace /status "open" "paid"`; lines(d) != want {
		t.Errorf("body %s, want %s", lines(d), want)
	}
}

// The headline names differences in HTTP version, reason phrase, interim responses and trailers. It ignores
// Server-Timing.
func TestDiffNamesWhatItDoesNotList(t *testing.T) {
	t.Parallel()
	const trailer = "0\r\nX-Sum: %d\r\nServer-Timing: t;dur=%d\r\n\r\n"
	for want, change := range map[string]func(*relay.Attempt){
		"200 in both, same body":                          func(*relay.Attempt) {},
		"200 in both, different HTTP version, same body":  func(a *relay.Attempt) { a.Response.Head = []byte("HTTP/1.0 200 OK\r\n\r\n") },
		"200 in both, different reason phrase, same body": func(a *relay.Attempt) { a.Response.Head = []byte("HTTP/1.1 200 Fine\r\n\r\n") },
		"200 in both, different interim responses, same body": func(a *relay.Attempt) {
			a.Interim = [][]byte{[]byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")}
		},
		"200 in both, different trailers, same body": func(a *relay.Attempt) { a.Response.Lines = fmt.Appendf(nil, trailer, 2, 1) },
		"200 in both, same body, same latency":       func(a *relay.Attempt) { a.Response.Lines = fmt.Appendf(nil, trailer, 1, 2) },
	} {
		s, id := answers([2]string{"", "a"}, [2]string{"", "a"})
		for i := range s[id].Attempts {
			a := &s[id].Attempts[i]
			a.Status, a.Timing, a.Response.Lines = 200, relay.Timing{}, fmt.Appendf(nil, trailer, 1, 1)
		}
		change(&s[id].Attempts[1])
		d, err := record.ReadDiff(t.Context(), s, record.Compared{Event: s[id], N: 1}, record.Compared{Event: s[id], N: 2}, "")
		if err != nil || !strings.HasPrefix(d.Headline, want) {
			t.Errorf("headline %q, want %q, %v", d.Headline, want, err)
		}
	}
	s, id := answers()
	other := *s[id]
	other.Request.Head = []byte("POST /hook HTTP/1.0\r\n\r\n")
	d, err := record.ReadDiff(t.Context(), s, record.Compared{Event: s[id]}, record.Compared{Event: &other}, "")
	if want := "same method and path, different HTTP version, same body"; err != nil || d.Headline != want {
		t.Errorf("headline %q, want %q, %v", d.Headline, want, err)
	}
}

func TestDiffOfBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(strings.Repeat("a line of text ", 10)+"\n", 20_000) // 3 MB
	var g bytes.Buffer
	w := gzip.NewWriter(&g)
	_, _ = w.Write([]byte(`{"a":1}`))
	_ = w.Close()
	for name, c := range map[string]struct {
		kind, was, is       string
		wantKind, wantLines string
		headline, note      string
	}{
		"numbers as written":   {isJSON, `{"id":9007199254740993}`, `{"id":9007199254740992}`, "json", "replace /id 9007199254740993 9007199254740992", "1 field changed", ""},
		"formatting":           {isJSON, `{"a":1,"b":"é"}`, `{ "b": "\u00e9", "a": 1 }`, "json", "", "same JSON values, different formatting", ""},
		"names with dots":      {isJSON, `{"a.b":1}`, `{"a":{"b":1}}`, "json", "remove /a.b 1\nadd /a  {\"b\":1}", "2 fields changed", ""},
		"escaped names":        {isJSON, `{"a/b~c":1}`, `{"a/b~c":2}`, "json", "replace /a~1b~0c 1 2", "1 field", ""},
		"root":                 {isJSON, `{"":1}`, `[1]`, "json", `replace  {"":1} [1]`, "1 field", ""},
		"inserted in front":    {isJSON, `[{"x":1},{"x":2}]`, `[{"x":0},{"x":1},{"x":2}]`, "json", `add /0  {"x":0}`, "1 field", ""},
		"moved":                {isJSON, `[1,2,3,4]`, `[2,3,4,1]`, "json", "move /0 /3", "1 field", ""},
		"swapped":              {isJSON, `{"l":["a","b","c"]}`, `{"l":["c","b","a"]}`, "json", "move /l/1 /l/2\nmove /l/0 /l/2", "2 fields", ""},
		"changed by id":        {isJSON, `[{"id":"a","v":1},{"id":"b","v":2}]`, `[{"id":"b","v":2},{"id":"a","v":9}]`, "json", "move /0 /1\nreplace /1/v 1 9", "2 fields", ""},
		"changed in its place": {isJSON, `[1,{"v":1},3]`, `[1,{"v":2},3]`, "json", "replace /1/v 1 2", "1 field", ""},
		"cleared":              {isJSON, `{"l":[1,2]}`, `{"l":[]}`, "json", "remove /l/1 2\nremove /l/0 1", "2 fields", ""},
		"null is there":        {isJSON, `{}`, `{"a":null}`, "json", "add /a  null", "1 field", ""},
		"not JSON":             {isJSON, `{"a":1`, `{"a":2`, "text", "-{\"a\":1\n+{\"a\":2", "1 line changed", ""},
		"too deep":             {isJSON, strings.Repeat("[", 20_000), strings.Repeat("[", 20_001), "text", "", "1 line changed", ""},
		"lines":                {isText, "a\nb\nc\nd\ne\nf\ng\nh\n", "a\nb\nc\nD\ne\nf\ng\nh\n", "text", " a\n b\n c\n-d\n+D\n e\n f\n g", "1 line changed", ""},
		"two places":           {isText, "x\n" + strings.Repeat("s\n", 9) + "y\n", "X\n" + strings.Repeat("s\n", 9) + "Y\n", "text", "-x\n+X\n s\n s\n s\n…\n s\n s\n s\n-y\n+Y", "2 lines changed", ""},
		"line ends":            {isText, "a\r\nb\r\n", "a\nb\n", "text", "", "different body", "the text is the same, but line ends or compression differ"},
		"far ends":             {isText, long + "1", long + "2", "text", "", "different body", "only the first 2097152 bytes were compared"},
		"near ends":            {isText, long[:1_500_000] + "1", long[:1_500_000] + "2", "text", "", "1 line changed", ""},
		"binary":               {isText, "a\x00b", "a\x00c", "binary", "", "different body", "binary bodies are not compared: 3 and 3 bytes"},
		"empty":                {isText, "", "x", "text", "+x", "1 line changed", ""},
		"gzip":                 {isJSON + "Content-Encoding: gzip\r\n", g.String(), g.String()[:10] + "damaged!", "text", "", "", "the gzip data is damaged"},
		"same":                 {isJSON, `{"a":1}`, `{"a":1}`, "json", "", "same body", ""},
		"name twice":           {isJSON, `{"amount":1,"amount":2}`, `{"amount":2}`, "json", `replace  {"amount":1,"amount":2} {"amount":2}`, "1 field changed", `the name "amount" stands more than once in an object`},
		"name twice, within":   {isJSON, `{"x":{"a":1,"a":2},"y":1}`, `{"x":{"a":2,"a":1},"y":2}`, "json", "replace /x {\"a\":1,\"a\":2} {\"a\":2,\"a\":1}\nreplace /y 1 2", "2 fields", `the name "a" stands`},
		"name twice in both":   {isJSON, `{"a":1,"a":2,"b":1}`, `{"a":1,"a":2,"b":2}`, "json", "replace /b 1 2", "1 field", ""},
		"spelling of numbers":  {isJSON, `{"a":1.0}`, `{"a":1}`, "json", "replace /a 1.0 1", "1 field", ""},
		"lone surrogates":      {isJSON, `{"a":"\ud800"}`, `{"a":"\ud801"}`, "json", `replace /a "\ud800" "\ud801"`, "1 field", ""},
		"lone, and U+FFFD":     {isJSON, `{"\udfff":"\ud800"}`, `{"\udfff":"\ufffd"}`, "json", `replace /\udfff "\ud800" "\ufffd"`, "1 field", ""},
		"pairs of surrogates":  {isJSON, `{"a":"\ud83d\ude00"}`, `{"a": "😀"}`, "json", "", "same JSON values", ""},
		"not UTF-8":            {isJSON, "{\"a\":\"caf\xe9\"}", "{\"a\":\"caf\xe8\"}", "json", `replace /a "caf\\xe9" "caf\\xe8"`, "1 field", `bytes that are not UTF-8 are written as \xNN`},
		"text, not UTF-8":      {isText, "caf\xe9", "caf\xe8", "text", "-caf\\xe9\n+caf\\xe8", "1 line changed", `bytes that are not UTF-8 are written as \xNN`},
		"byte order mark":      {isJSON, "\xef\xbb\xbf{\"a\":1}", `{"a":1}`, "json", "", "same JSON values, different formatting", ""},
		"JSON lines":           {"Content-Type: application/x-ndjson\r\n", "{\"a\":1}\n{\"a\":2}\n", "{\"a\":1}\n{\"a\":3}\n", "json", "replace /1/a 2 3", "1 field", ""},
		"form":                 {isForm, "a=b+c&d=1", "a=b%20c&d=2", "text", " a: b c\n-d: 1\n+d: 2", "1 line changed", ""},
		"form, spelling":       {isForm, "a=b+c", "a=b%20c", "text", "", "different body", "the fields are the same, but they are spelled in another way"},
		"JSON in a form":       {isForm, "payload=%7B%22ref%22%3A1%7D", "payload=%7B%22ref%22%3A2%7D", "text", " payload: {\n-  \"ref\": 1\n+  \"ref\": 2\n }", "1 line changed", ""},
		"charset":              {"Content-Type: text/plain; charset=iso-8859-1\r\n", "caf\xe9", "caf\xe8", "text", "-café\n+cafè", "1 line changed", ""},
	} {
		d := diffOf(t, [2]string{c.kind, c.was}, [2]string{c.kind, c.is})
		if out, err := json.Marshal(d); err != nil || bytes.Contains(out, []byte("\ufffd")) && !strings.Contains(c.was+c.is, `\ufffd`) {
			t.Errorf("%s: %s", name, out)
		}
		if d.Body.Kind != c.wantKind || !strings.Contains(d.Headline, c.headline) || !strings.Contains(d.Body.Note, c.note) {
			t.Errorf("%s: kind %s, headline %q, note %q", name, d.Body.Kind, d.Headline, d.Body.Note)
		}
		if got := lines(d); got != c.wantLines && c.wantLines != "" || c.headline != "1 line changed" && c.wantLines == "" && len(d.Body.Changes) > 0 && name != "gzip" {
			t.Errorf("%s:\n%.300s\nwant\n%s", name, got, c.wantLines)
		}
	}
}

func TestDiffMarksWordsOfALine(t *testing.T) {
	t.Parallel()
	d := diffOf(t, [2]string{isText, "the quick brown fox\nall other\n"}, [2]string{isText, "the slow brown fox\n\x21\n"})
	got := fmt.Sprint(d.Body.Changes[0].Marks, d.Body.Changes[2].Marks, d.Body.Changes[1].Marks)
	if want := "[{the  false} {quick true} { brown fox false}] [{the  false} {slow true} { brown fox false}] []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	long := strings.Repeat("é same words ", 10_000)
	d = diffOf(t, [2]string{isText, long + "one"}, [2]string{isText, long + "two"})
	if c := d.Body.Changes; len(c) != 2 || len(c[0].Text) > 1100 || !strings.HasSuffix(c[0].Text, "one") || !c[0].Marks[len(c[0].Marks)-1].Changed {
		t.Errorf("long line: %.300v", c)
	}
}

func TestDiffOfRequests(t *testing.T) {
	t.Parallel()
	s := stored{}
	event := func(n int, path, delivery string) relay.ID {
		id := idAt(time.Date(2026, 11, 21, 12, n, 0, 0, time.UTC))
		s[id] = &relay.Event{
			ID: id, Method: "POST", Target: []byte(path), Provider: relay.Provider{Name: "stripe", DeliveryID: delivery},
			Request: message("POST "+path+" HTTP/1.1", isJSON+"Stripe-Signature: t=1,v1="+delivery+"\r\n", `{"id":"`+delivery+`","amount":`+strconv.Itoa(n)+`}`),
		}
		return id
	}
	a, b := event(1, "/hook", "evt_a"), event(2, "/other", "evt_b")
	d, err := record.ReadDiff(t.Context(), s, record.Compared{Event: s[a]}, record.Compared{Event: s[b]}, "")
	if err != nil {
		t.Fatal(err)
	}
	if d.Part != record.DiffRequest || d.Status != nil || d.LatencyMs != nil || d.Request.Left != "POST /hook" || d.Request.Right != "POST /other" {
		t.Errorf("%+v", d)
	}
	if len(d.Headers) != 1 || !d.Headers[0].Noise {
		t.Errorf("headers %+v", d.Headers)
	}
	if c := d.Body.Changes; len(c) != 2 || !c[0].Noise || c[1].Noise {
		t.Errorf("body %+v", c)
	}
	if _, err := record.ReadDiff(t.Context(), s, record.Compared{Event: s[a], N: 1}, record.Compared{Event: s[b], N: 1}, ""); err == nil {
		t.Error("responses that do not exist are compared")
	}
	for text, ok := range map[string]bool{a.String(): true, a.String() + "/2": true, a.String() + "/0": false, a.String() + "/02": false, a.String() + "/x": false, "evt_x/1": false, "": false} {
		if _, err := record.ReadCompared(t.Context(), s, relay.System(), text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The changes of two random JSON values form a patch that turns the left value into the right one.
func TestDiffIsAPatch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var value func(depth int) any
	value = func(depth int) any {
		switch k := r.IntN(6); {
		case k == 0 && depth > 0:
			m := map[string]any{}
			for range r.IntN(4) {
				m[[]string{"id", "a/b", "~", "x.y", ""}[r.IntN(5)]] = value(depth - 1)
			}
			return m
		case k <= 3 && depth > 0:
			list := []any{}
			for range r.IntN(7) {
				list = append(list, value(depth-1))
			}
			return list
		default:
			return float64(r.IntN(5))
		}
	}
	for range 3000 {
		was, is := value(3), value(3)
		a, _ := json.Marshal(was)
		b, _ := json.Marshal(is)
		d := diffOf(t, [2]string{isJSON, string(a)}, [2]string{isJSON, string(b)})
		if d.Body.Kind != record.DiffJSON { // two scalars are compared as text
			continue
		}
		var got any
		_ = json.Unmarshal(a, &got)
		for _, c := range d.Body.Changes {
			got = apply(t, got, c)
		}
		if !reflect.DeepEqual(got, is) {
			p, _ := json.Marshal(d.Body.Changes)
			t.Fatalf("%s and %s: %s makes %v", a, b, p, got)
		}
	}
}

// apply applies one operation of RFC 6902.
func apply(t *testing.T, doc any, c record.BodyChange) any {
	t.Helper()
	var v any
	if c.Value != nil {
		if err := json.Unmarshal(c.Value, &v); err != nil {
			t.Fatal(err)
		}
	}
	switch c.Op {
	case "move":
		doc = edit(t, doc, *c.From, "remove", nil)
		return edit(t, doc, *c.Path, "add", v)
	default:
		return edit(t, doc, *c.Path, c.Op, v)
	}
}

func edit(t *testing.T, doc any, path, op string, v any) any {
	t.Helper()
	if path == "" {
		return v
	}
	step, rest, deeper := strings.Cut(path[1:], "/")
	step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
	switch doc := doc.(type) {
	case map[string]any:
		switch _, exists := doc[step]; {
		case !exists && (deeper || op != "add"):
			t.Fatalf("%s: nothing is at %q", op, step)
		case deeper:
			doc[step] = edit(t, doc[step], "/"+rest, op, v)
		case op == "remove":
			delete(doc, step)
		default:
			doc[step] = v
		}
		return doc
	case []any:
		i, err := strconv.Atoi(step)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case deeper:
			doc[i] = edit(t, doc[i], "/"+rest, op, v)
		case op == "add":
			return slices.Insert(doc, i, v)
		case op == "remove":
			return slices.Delete(doc, i, i+1)
		default:
			doc[i] = v
		}
		return doc
	}
	t.Fatalf("%q does not lead into %v", path, doc)
	return nil
}

// Comparing large bodies of the worst kinds takes limited time. The result has at most 8 MiB, and a note if
// changes are left out.
func TestDiffOfHostileBodies(t *testing.T) {
	t.Parallel()
	numbers := func(n int, f func(int) int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", f(i))
		}
		return "[" + b.String()[1:] + "]"
	}
	distinct := func(prefix string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s%d\n", prefix, i)
		}
		return b.String()
	}
	n := 100_000
	if relaytest.RaceEnabled() {
		n = 20_000 // the race detector takes five to ten times as long
	}
	for name, c := range map[string][3]string{
		"reversed":      {isJSON, numbers(n, func(i int) int { return i }), numbers(n, func(i int) int { return n - i })},
		"nothing alike": {isJSON, numbers(n, func(i int) int { return i }), numbers(n, func(i int) int { return -i - 1 })},
		"gone":          {isJSON, numbers(n, func(i int) int { return i }), "[]"},
		"deep":          {isJSON, strings.Repeat("[", 9000) + "1" + strings.Repeat("]", 9000), strings.Repeat("[", 9000) + "2" + strings.Repeat("]", 9000)},
		"lines":         {isText, distinct("a", n), distinct("b", n)},
		"long line":     {isText, strings.Repeat("a ", 1_000_000), strings.Repeat("b ", 1_000_000)},
		"32 MiB":        {isText, strings.Repeat("a\n", 16<<20), strings.Repeat("b\n", 16<<20)},
	} {
		began := time.Now()
		d := diffOf(t, [2]string{c[0], c[1]}, [2]string{c[0], c[2]})
		took := time.Since(began)
		out, err := json.Marshal(d)
		t.Logf("%s: %v, %d of %d changes, %d bytes, %q", name, took.Round(time.Millisecond), len(d.Body.Changes), d.Body.Total, len(out), d.Body.Note)
		if err != nil || took > relaytest.Limit(5*time.Second, began) || len(out) > 8<<20 || d.Body.Total > len(d.Body.Changes) && d.Body.Note == "" {
			t.Errorf("%s: %v, %v, %d bytes, note %q", name, took, err, len(out), d.Body.Note)
		}
	}
}

// TestDiffListsFiveHundredChanges: at most 500 changes are listed. If there are more, and only then, the note
// says that it lists the first 500.
func TestDiffListsFiveHundredChanges(t *testing.T) {
	t.Parallel()
	for _, n := range []int{499, 500, 501} {
		var left, right []string
		for i := range n {
			left, right = append(left, fmt.Sprintf("%d", i)), append(right, fmt.Sprintf("%d", i+10_000))
		}
		members := func(list []string) string {
			var out []string
			for i, v := range list {
				out = append(out, fmt.Sprintf(`"m%d":%s`, i, v))
			}
			return "{" + strings.Join(out, ",") + "}"
		}
		d := diffOf(t, [2]string{isJSON, members(left)}, [2]string{isJSON, members(right)})
		if len(d.Body.Changes) != min(n, 500) || d.Body.Total != n {
			t.Errorf("%d changed fields: %d are listed of %d", n, len(d.Body.Changes), d.Body.Total)
		}
		d = diffOf(t, [2]string{isText, strings.Join(left, "\n")}, [2]string{isText, "x\n" + strings.Join(left, "\n") + strings.Repeat("\ny", n-1)})
		if cut := strings.Contains(d.Body.Note, "only the first 500"); cut != (n > 500) || d.Body.Total != n {
			t.Errorf("%d changed lines of %d: %q", d.Body.Total, n, d.Body.Note)
		}
	}
}
