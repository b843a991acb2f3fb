package api_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestReference: the reference has every operation of the document with a command to call it, and its
// content security policy allows no script and no foreign resource.
func TestReference(t *testing.T) {
	t.Parallel()
	a := newClient(t).get("", "/api/v1/docs").want(200)
	if csp := a.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q", csp)
	}
	if regexp.MustCompile(`(?i)<script|<link|<img|style="|https?://[^"<]*\.(js|css)\b`).MatchString(a.body) {
		t.Error("the page needs more than itself")
	}
	n := 0
	for path, operations := range openAPI(t).Paths {
		for method, op := range operations {
			n++
			_, article, found := strings.Cut(a.body, `<article id="`+op.OperationID+`">`)
			article, _, _ = strings.Cut(article, "</article>")
			if !found || !strings.Contains(article, strings.ToUpper(method)) || !strings.Contains(article, path) || !strings.Contains(article, "curl -s") {
				t.Errorf("%s %s is missing or incomplete", method, path)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d operations", n)
	}
	for _, want := range []string{`&#34;oneUse&#34;: true`, "events/evt_01k…/shares", "-X DELETE"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}
