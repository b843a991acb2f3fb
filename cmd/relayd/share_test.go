package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/relaytest"
)

// TestOperatorEndsWhatLeaked: the operator can end a leaked share, token or login of any account, given only
// the leaked text. The audit log records that without the secret.
func TestOperatorEndsWhatLeaked(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		all := map[string]string{"max-share-age": "2d"}
		maps.Copy(all, flags)
		endWhatLeaked(t, newTestServer(t, all))
	})
}

func endWhatLeaked(t *testing.T, h *testServer) {
	t.Helper()
	ctx, system := t.Context(), relay.System()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(h.app.store.CreateAlias(ctx, system, "shop", h.start.Admin))
	answer := h.send("POST /hook HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
	if !strings.Contains(answer, " 202 ") {
		t.Fatal(answer)
	}
	event := h.newest("shop").ID
	share := func(body string) (made record.Share) {
		t.Helper()
		if status := h.api(http.MethodPost, "/events/"+event+"/shares", body, &made); status != http.StatusCreated {
			t.Fatalf("share: %d", status)
		}
		return made
	}
	opens := func(s record.Share) bool {
		return h.api(http.MethodGet, "/shared/"+s.Token, "", nil) == http.StatusOK
	}
	for _, body := range []string{`{"expiresIn":null}`, `{"expiresIn":"30d"}`, `{}`} { // max-share-age limits each of these shares
		if made := share(body); made.ExpiresAt == nil || time.Until(made.ExpiresAt.Time) > 48*time.Hour {
			t.Errorf("share %s ends at %v", body, made.ExpiresAt)
		}
	}
	for _, by := range []func(record.Share) string{
		func(s record.Share) string { return s.URL },
		func(s record.Share) string { return s.ReplayURL },
		func(s record.Share) string { return s.ID },
		func(s record.Share) string { return strings.TrimLeft(s.ID[len(s.ID)-8:], "-") }, // a - would begin a flag
		func(s record.Share) string { return s.Token },
		func(s record.Share) string { return strings.TrimPrefix(s.URL, "http://") + "/?from=chat#top" },
		func(s record.Share) string { return "<" + s.URL + ">." },
	} {
		s := share(`{}`)
		out, code := h.operate("share", "rm", by(s))
		if code != cli.ExitOK || opens(s) {
			t.Errorf("share rm %s: exit %d, still opens: %v: %s", by(s), code, opens(s), out)
		}
		if _, code := h.operate("share", "rm", by(s)); code != cli.ExitFailure {
			t.Errorf("share rm of a revoked one: exit %d", code)
		}
	}
	for _, limit := range [][]string{{"--alias", "shpo"}, {"--user", "nobody"}, {"--alias", "shop", "--user", "nobody"}} {
		if out, code := h.operate(append([]string{"share", "list"}, limit...)...); code != cli.ExitFailure {
			t.Errorf("share list %v: exit %d: %s", limit, code, out)
		}
	}
	out, _ := h.operate("share", "list", "--json", "--alias", "shop")
	var shares []shareOf
	if err := json.Unmarshal([]byte(out), &shares); err != nil || len(shares) != 3 || shares[0].Alias != "shop" || shares[0].User != h.start.Admin || shares[0].Event != event {
		t.Errorf("%v: %s", err, out)
	}
	must(h.app.store.CreateAccount(ctx, system, "idle", false))
	if out, code := h.operate("share", "list", "--json", "--user", "idle"); code != cli.ExitOK || strings.TrimSpace(out) != "[]" {
		t.Errorf("shares of an account without one: exit %d: %s", code, out)
	}

	link, err := h.app.store.CreateLoginLink(ctx, system, h.start.Admin, 0)
	must(nil, err)
	secret, _, err := h.app.store.UseLoginLink(ctx, link, "192.0.2.7", "Browser")
	must(nil, err)
	out, _ = h.operate("session", "list", "--json", "--user", h.start.Admin)
	var sessions []sessionOf
	if err := json.Unmarshal([]byte(out), &sessions); err != nil || len(sessions) != 1 || sessions[0].User != h.start.Admin {
		t.Fatalf("%v: %s", err, out)
	}
	if _, code := h.operate("session", "rm", sessions[0].ID); code != cli.ExitOK {
		t.Errorf("session rm: exit %d", code)
	}
	if _, err := h.app.store.SessionOwner(ctx, secret); err == nil {
		t.Error("the session goes on")
	}
	if _, code := h.operate("session", "rm", "ses_nothing"); code != cli.ExitFailure {
		t.Errorf("session rm of nothing: exit %d", code)
	}

	found := h.token
	if _, code := h.operate("token", "rm", found); code != cli.ExitOK {
		t.Errorf("token rm by the token: exit %d", code)
	}
	if status := h.api(http.MethodGet, "/me", "", nil); status != http.StatusUnauthorized {
		t.Errorf("the revoked token gets %d", status)
	}
	if _, code := h.operate("token", "rm", found); code != cli.ExitFailure {
		t.Errorf("token rm of a revoked one: exit %d", code)
	}

	invite, code := h.operate("invite", h.start.Admin)
	invite = strings.TrimSpace(invite)
	if code != cli.ExitOK {
		t.Errorf("invite: exit %d", code)
	}
	if _, code := h.operate("share", "rm", strings.TrimPrefix(invite, "http://")+"/"); code != cli.ExitOK {
		t.Errorf("share rm of an invite: exit %d", code)
	}
	if _, err := h.app.store.Invite(ctx, invite[strings.LastIndex(invite, "/")+1:]); err == nil {
		t.Error("the invite still opens")
	}
	if _, code := h.operate("share", "rm", invite); code != cli.ExitFailure {
		t.Errorf("share rm of an ended invite: exit %d", code)
	}

	out, _ = h.operate("audit", "--since", "1h", "--json")
	for _, action := range []string{"share.remove", "session.remove", "token.remove", "invite.remove"} {
		if !strings.Contains(out, `"`+action+`"`) {
			t.Errorf("the audit log has no %s: %s", action, out)
		}
		if !relaytest.Poll(30*time.Second, func() bool { return strings.Contains(h.log.String(), "msg=audit action="+action+" actor=system") }) {
			t.Errorf("the log of the server has no line of %s, which a command did", action)
		}
	}
	for _, text := range []string{found, secret, link, invite[strings.LastIndex(invite, "/")+1:]} {
		if strings.Contains(out, text) || strings.Contains(h.log.String(), text) {
			t.Error("the audit log or the log of the server has a secret")
		}
	}
	whole, _ := h.operate("audit", "-n", "1000")
	entry := regexp.MustCompile(`(?m)^(\S+)\s+\S+\s+share\.remove\s+(\S+)`).FindStringSubmatch(whole)
	if entry == nil {
		t.Fatalf("no share.remove in the list: %s", whole)
	}
	if out, code := h.operate("audit", "--since", entry[1]); code != cli.ExitOK || !strings.Contains(out, entry[2]) {
		t.Errorf("since the shown time %s: exit %d, without its entry: %s", entry[1], code, out)
	}
	if out, _ := h.operate("audit", "--since", time.Now().Add(time.Hour).Format(time.RFC3339), "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("entries of the future: %s", out)
	}
	if _, code := h.operate("audit", "--since", "yesterday"); code != cli.ExitUsage {
		t.Errorf("--since yesterday: exit %d", code)
	}
}
