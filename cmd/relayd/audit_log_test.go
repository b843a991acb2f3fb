package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/cli"
	"relay/record"
	"relay/relaytest"
)

// TestEachActIsLoggedOnce: revoking a token makes one line in the log of the server, whether an admin does it
// by the API, in the dashboard, over SSH or with relayd. The line names the token by its id.
func TestEachActIsLoggedOnce(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	browser, _ := h.signedIn()
	status := func(client *http.Client, req *http.Request, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	command := func(id string) bool { _, code := h.operate("token", "rm", id); return code == cli.ExitOK }
	var ids, secrets []string
	for _, c := range []struct {
		name   string
		revoke func(id string) bool
	}{
		{"API", func(id string) bool {
			return h.api(http.MethodDelete, "/tokens/"+id, "", nil) == http.StatusNoContent
		}},
		{"dashboard", func(id string) bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.app.site.URL("/account/tokens/"+id+"/remove"), nil)
			return status(browser, req, err) == http.StatusOK // status of the page after the redirect
		}},
		{"SSH", func(id string) bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://relay/api/v1/tokens/"+id, nil)
			return status(h.overSSH(), req, err) == http.StatusNoContent
		}},
		{"command", command},
		{"a command after that", command}, // a duplicate line of the first command would be in the log before the line of this one
	} {
		var made record.Token
		if status := h.api(http.MethodPost, "/tokens", `{"name":"leaked"}`, &made); status != http.StatusCreated || made.Token == "" {
			t.Fatalf("%s: %d", c.name, status)
		}
		ids, secrets = append(ids, made.ID), append(secrets, made.Token)
		if !c.revoke(made.ID) {
			t.Fatalf("%s: the token was not revoked", c.name)
		}
		if _, err := h.app.store.TokenOwner(t.Context(), made.Token); err == nil {
			t.Errorf("%s: the token still works", c.name)
		}
		if !relaytest.Poll(30*time.Second, func() bool { return len(h.auditLines("token.remove", made.ID)) > 0 }) {
			t.Errorf("%s: no line in\n%s", c.name, h.log.String())
		}
	}
	for _, id := range ids {
		if lines := h.auditLines("token.remove", id); len(lines) != 1 {
			t.Errorf("%d lines: %q", len(lines), lines)
		} else if strings.Contains(lines[0], `=""`) {
			t.Errorf("the line has an empty value: %s", lines[0])
		}
	}
	for _, secret := range append(secrets, h.token) {
		if strings.Contains(h.log.String(), secret) {
			t.Error("the log has the text of a token")
		}
	}
}

// auditLines returns the lines that the server has logged about an act on a target.
func (h *testServer) auditLines(action, target string) (lines []string) {
	for line := range strings.Lines(h.log.String()) {
		if strings.Contains(line, "msg=audit action="+action+" ") && strings.Contains(line, target) {
			lines = append(lines, line)
		}
	}
	return lines
}
