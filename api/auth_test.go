package api_test

import (
	"fmt"
	"testing"

	"relay/record"
)

// TestOneLineOfCredentials: a request with more than one Authorization line is refused, even if one of them
// is valid.
func TestOneLineOfCredentials(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	right, wrong := "Bearer "+h.asAlice, "Bearer rly_wrong"
	for _, c := range []struct {
		lines  []string
		status int
	}{
		{[]string{right}, 200}, {[]string{right, wrong}, 401}, {[]string{wrong, right}, 401}, {[]string{right, right}, 401}, {[]string{right, ""}, 401},
	} {
		r := h.request("GET", "", "/api/v1/me", "")
		r.Header["Authorization"] = c.lines
		h.do(r).want(c.status)
	}
}

// TestOnlyAgentsSayByWhatTheyAct: the audit log records the name of a program in record.ViaHeader only if it
// is mcp, or begins with "mcp ".
func TestOnlyAgentsSayByWhatTheyAct(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	n := 0
	for via, want := range map[string]string{"mcp agent-x/7": "mcp agent-x/7", "mcp": "mcp", "curl/8": "", "mcpx 1": "", "ssh mcp": "", "": ""} {
		n++
		r := h.request("POST", h.asAlice, "/api/v1/aliases", fmt.Sprintf(`{"name":"via-%d"}`, n))
		if via != "" {
			r.Header.Set(record.ViaHeader, via)
		}
		h.do(r).want(201)
		list, err := h.store.Audit(t.Context(), h.alice, 1)
		must(t, err)
		if len(list) != 1 || list[0].Via != want {
			t.Errorf("%q: %+v", via, list)
		}
	}
}
