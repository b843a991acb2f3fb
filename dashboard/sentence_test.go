package dashboard_test

import (
	"fmt"
	"testing"
)

func failing(body string) func([]byte, []byte) string {
	return func([]byte, []byte) string {
		return fmt.Sprintf("HTTP/1.1 500 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// TestPagesSayWhatHappened: the page and the row of a failed event show the escaped error text of the
// response, and do not after a successful replay.
func TestPagesSayWhatHappened(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	r.answers(failing(`{"error":"<b>no user</b> \u001b[31m"}`))
	id := r.send(post("/a", "{}")).String()
	const said = `&lt;b&gt;no user&lt;/b&gt; \x1b[31m`
	contains(t, "event", r.get("/events/"+id, 200), `<p id="happened" class="failure">500 after `, said+`</p>`)
	contains(t, "list", r.get("/aliases/hook", 200), `<span class="cause">`+said+`</span>`)
	r.answers(func([]byte, []byte) string { return ok })
	r.replay(id)
	for _, page := range []string{r.get("/events/"+id, 200), r.get("/aliases/hook", 200)} {
		if count(page, "", `id="happened"`)+count(page, "", `class="cause"`) != 0 {
			t.Error("an event whose last attempt was answered with 200 says what went wrong before")
		}
	}
}
