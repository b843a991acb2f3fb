package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
)

// What a comparison says of two bodies is true: the same are those that are, and
// values stand there as they came.
func TestComparisonSaysWhatDiffers(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	deep := func(in string) string { return strings.Repeat("[", 20_000) + in + strings.Repeat("]", 20_000) }
	long := strings.Repeat(strings.Repeat("a line of text ", 10)+"\n", 1000)
	const isJSON, isText = "application/json", "text/plain"
	for _, c := range []struct {
		name, kind, was, is string
		wants, lacks        []string
	}{
		{"names with dots", isJSON, `{"a.b":1}`, `{"a":{"b":1}}`, []string{"2 fields changed", `[&#34;a.b&#34;]`, "absent"}, []string{"same values"}},
		{"no name", isJSON, `{"":1}`, `1`, []string{"2 fields changed"}, []string{"same values"}},
		{"signs of HTML", isJSON, `{"m":"a & <b>"}`, `{"m":"c"}`, []string{"1 field changed", "<code>&#34;a &amp; &lt;b&gt;&#34;</code>"}, []string{"u0026", "u003c"}},
		{"spaces", isJSON, `{"a":1}`, `{ "a": 1 }`, []string{"same JSON values, different formatting"}, nil},
		{"too deep", isJSON, deep("1"), deep("2"), []string{"1 line changed"}, []string{"same values"}},
		{"tabs", isText, "trace:\n\tone\n", "trace:\n\ttwo\n", []string{"1 line changed", "\tone", "\ttwo"}, []string{`\tone`}},
		{"line ends", isText, "a\r\nb\r\n", "a\nb\n", []string{"same text, different bytes", "line endings or compression differ"}, []string{"0 lines"}},
		{"far ends", isText, long + "1", long + "2", []string{"bodies differ after the compared part", "Only the first 128.0 KiB are compared."}, []string{"0 lines"}},
	} {
		body := c.was
		r.answers(func([]byte, []byte) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nX: 1\r\nContent-Length: %d\r\n\r\n%s", c.kind, len(body), body)
		})
		id := r.send(post("/hook", "{}")).String()
		r.answers(func([]byte, []byte) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nX: 1\r\nContent-Length: %d\r\n\r\n%s", c.kind, len(c.is), c.is)
		})
		r.replay(id)
		_, diff, _ := strings.Cut(r.get("/events/"+id+"?diff=1,2", 200), `id="diff"`)
		diff, _, _ = strings.Cut(diff, "Close the comparison")
		contains(t, c.name, diff, c.wants...)
		for _, text := range c.lacks {
			if strings.Contains(diff, text) {
				t.Errorf("%s says %q", c.name, text)
			}
		}
	}
}

// Parts that are left out of the page are told, and how much of one is shown.
func TestPartsSayWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	part := "--b\r\nContent-Disposition: form-data; name=\"p\"\r\n\r\n" + strings.Repeat("x", 5000) + "\r\n"
	page := func(body string) string {
		request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return r.get("/events/"+r.send(request).String(), 200)
	}
	if whole := page(strings.Repeat(part, 50) + "--b--\r\n"); strings.Contains(whole, "Only the first") || !strings.Contains(whole, "4.9 KiB, of which the first 4.0 KiB are shown") {
		t.Error("50 parts are not shown as all of them, each with how much of it is shown")
	}
	contains(t, "51 parts", page(strings.Repeat(part, 51)+"--b--\r\n"), "Only the first 50 parts are shown.")
	contains(t, "a part without its end", page(part), "at least 4.9 KiB")
}
