package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestCompareEvents: requests and responses of two events can be compared. If the address names only one event,
// the page offers other events of the same type. If it names none, or one that does not exist, the answer is
// 404.
func TestCompareEvents(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	const signed = "Stripe-Signature: t=1,v1=x"
	one := r.send(post("/hook", `{"type":"invoice.paid","amount":1,"note":"a & <b>","lines":[{"id":"x"},{"id":"y"}]}`, signed)).String()
	r.send(post("/hook", `{"type":"charge.refunded"}`, signed))
	two := r.send(post("/hook", `{"type":"invoice.paid","amount":2,"note":"c","lines":[{"id":"new"},{"id":"x"},{"id":"y"}]}`, signed)).String()
	page := r.get("/events/"+two, 200)
	contains(t, "event", page, `href="/diff?left=`+two+`"`)
	chooser := r.get("/diff?left="+two, 200)
	contains(t, "chooser", chooser, "with another event", "left="+one+"&amp;part=request&amp;right="+two)
	contains(t, "chooser of the oldest event", r.get("/diff?left="+one, 200), "left="+one+"&amp;part=request&amp;right=")
	contains(t, "chooser of an event without others like it", r.get("/diff?left="+r.send(post("/hook", `{"type":"only.one"}`, signed)).String(), 200), "There is no other event like it", `name="right"`)
	if strings.Contains(chooser, "charge.refunded") {
		t.Error("the chooser offers events of another type")
	}
	page = r.get("/diff?left="+one+"&right="+two+"&part=request", 200)
	contains(t, "requests", page, "Compare requests", "3 fields changed", "<code>amount</code>", "<code>1</code>", "<code>2</code>", "a &amp; &lt;b&gt;", "lines[0]", "absent", "Compare the responses")
	contains(t, "responses", r.get("/diff?left="+one+"&right="+two+"&part=response", 200), "Compare responses", "200 in both, same body")
	contains(t, "two events, no part", r.get("/diff?left="+one+"&right="+two, 200), "Compare requests", "3 fields changed")
	contains(t, "two attempts, no part", r.get("/diff?left="+one+"/1&right="+two+"/1", 200), "Compare responses", "200 in both, same body", "Compare the requests")
	contains(t, "no such part", r.get("/diff?left="+one+"&right="+two+"&part=header", 422), "expected request or response")
	r.offline()
	waiting := r.send(post("/hook", "{}")).String()
	contains(t, "no response", r.get("/diff?left="+one+"&right="+waiting+"&part=response", 200), "One of the two has no response")
	for _, path := range []string{"/diff", "/diff?left=evt_x", "/diff?left=" + one + "&right=evt_00000000000000000000000000"} {
		r.get(path, 404)
	}
}

// TestDiffMarksWithinLines: in two similar lines of text the words that differ are marked, and HTML in a line
// is escaped.
func TestDiffMarksWithinLines(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	body := "trace:\n\tthe quick brown fox jumps over the lazy dog\n<script>alert(1)</script>\n"
	r.answers(func([]byte, []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	id := r.send(post("/hook", "{}")).String()
	body = strings.Replace(body, "brown fox", "red fox", 1)
	page := r.replay(id)
	contains(t, "diff", page, `id="diff"`, "1 line changed", "<mark>brown</mark>", "<mark>red</mark>", "\tthe quick", "&lt;script&gt;")
}

// TestPartsSayWhatIsLeftOut: 50 text parts of a body are shown completely. If the page leaves out further
// parts or the rest of a binary part, or if the end of a part was not stored, the page says so.
func TestPartsSayWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	part := "--b\r\nContent-Disposition: form-data; name=\"p\"\r\n\r\n" + strings.Repeat("x", 5000) + "\r\n"
	page := func(body string) string {
		request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return r.get("/events/"+r.send(request).String(), 200)
	}
	if whole := page(strings.Repeat(part, 50) + "--b--\r\n"); strings.Contains(whole, "Only the first") || strings.Count(whole, strings.Repeat("x", 5000)) != 50 {
		t.Error("50 parts are not shown as all of them, each of them whole")
	}
	binary := strings.Replace(part, "xxx", "x\x00x", 1)
	contains(t, "a part that is no text", page(binary+"--b--\r\n"), "4.9 KiB, of which the first 512 B are shown")
	contains(t, "51 parts", page(strings.Repeat(part, 51)+"--b--\r\n"), "Only the first 50 parts are shown.")
	contains(t, "a part without its end", page(part), "at least 4.9 KiB")
}
