package dashboard_test

import (
	"html"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

func TestSettingsAreKept(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	const path = "/aliases/shop/settings"
	o.get("alice", path).want(200,
		`name="offlineStatus" value="202"`, `name="hostHeader" value="preserve"`, `name="autoDeliver"`, `name="forwarded"`,
		`name="freshConnections"`, `name="responseTimeout"`, `name="retention"`, `name="paused"`, "Default: 202")
	o.post("alice", path, "offlineStatus", " 503 ", "autoDeliver", "off", "autoDeliver", "on", "hostHeader", "localhost:3000",
		"forwarded", "off", "freshConnections", "on", "responseTimeout", "30m", "retention", "7d", "paused", "on").redirectsTo(path + "?done=saved")
	a, err := o.Alias(t.Context(), o.actor("alice"), "shop")
	o.must(err)
	s := a.Settings
	if s.OfflineStatus != 503 || !s.AutoDeliver || s.HostHeader != "localhost:3000" || s.Forwarded || !s.FreshConnections || !s.Paused ||
		*s.ResponseTimeout != 30*time.Minute || *s.Retention != 7*24*time.Hour {
		t.Errorf("settings %+v", s)
	}
	o.get("alice", path+"?done=saved").want(200, "The settings were saved.", `value="30m"`, `value="7d"`)
	o.get("alice", path+"?done=<script>").lacks("script>1", "&lt;script")

	// Settings that are not in the form keep their values. An empty duration restores the default of the
	// server.
	o.post("alice", path, "retention", "", "paused", "off").redirectsTo(path + "?done=saved")
	a, err = o.Alias(t.Context(), o.actor("alice"), "shop")
	o.must(err)
	if a.Settings.Retention != nil || a.Settings.Paused || a.Settings.OfflineStatus != 503 || !a.Settings.AutoDeliver {
		t.Errorf("settings %+v", a.Settings)
	}
}

// TestEverySettingIsOnThePage: each setting has a field with a label, its help and its default.
func TestEverySettingIsOnThePage(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	page := html.UnescapeString(o.get("alice", "/aliases/shop/settings").body)
	for _, help := range record.SettingsHelp() {
		_, field, _ := strings.Cut(page, `name="was.`+help.Key+`"`)
		field, _, _ = strings.Cut(field, `name="was.`)
		if !regexp.MustCompile(`[A-Z][^<>]+ <code class="dim">`+help.Key+`<`).MatchString(field) || !regexp.MustCompile(`[A-Za-z0-9][^<>]+ Default: `+help.Default+`\.`).MatchString(field) {
			t.Errorf("%s: %s", help.Key, field)
		}
	}
}

// TestAnswersArePreviewed: answers while offline are previewed as typed without being saved, and their text
// is escaped. A form with an error is refused.
func TestAnswersArePreviewed(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	const path = "/aliases/shop/settings"
	const typed = `[{"method":"POST","pathPrefix":"/hooks","status":201,"headers":[["X-A","b"]],"body":{"encoding":"utf8","data":"<b>hi"}}]`
	o.post("alice", path, "answers", typed, "handshakes", "slack", "preview", "1").want(200, "To POST /hooks…", "HTTP/1.1 201 Created\nX-A: b\n\n&lt;b&gt;hi", `value="slack"`)
	if a, _ := o.Alias(t.Context(), o.actor("alice"), "shop"); len(a.Settings.Answers)+len(a.Settings.Handshakes) > 0 {
		t.Errorf("a preview was saved: %+v", a.Settings)
	}
	o.post("alice", path, "answers", `[{"headers":[["Set-Cookie","a=b"]]}]`, "preview", "1").want(200, `id="set-answers-wrong"`)
	o.post("alice", path, "answers", `[{"status":99}]`).want(422, `id="set-answers-wrong"`)
	o.post("alice", path, "answers", typed, "handshakes", "slack, graph").redirectsTo(path + "?done=saved")
	o.get("alice", path).want(200, "To POST /hooks…", `value="slack graph"`)
	o.post("alice", path+"/handshakes", "name", "okta").redirectsTo(path + "?done=saved")
	o.post("alice", path+"/handshakes", "name", "okta").redirectsTo(path + "?done=saved")
	o.get("alice", path).want(200, `value="slack graph okta"`)
	o.post("alice", path+"/handshakes", "name", "no such").want(422)
}

// TestVerifyTokenIsNotShown: the verify token can be typed, is never shown, and stays unless another one or
// "default" is typed.
func TestVerifyTokenIsNotShown(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	o.must(o.AddMember(t.Context(), o.actor("alice"), "shop", "bob"))
	const path, token = "/aliases/shop/settings", "meatyhamhock"
	kept := func() bool {
		a, err := o.Alias(t.Context(), o.actor("alice"), "shop")
		o.must(err)
		return a.Settings.VerifyToken != nil
	}
	o.get("alice", path).want(200, `type="password" name="verifyToken" placeholder="none"`)
	o.post("alice", path, "was.verifyToken", "", "verifyToken", token, "offlineStatus", "77").want(422).lacks(token)
	if kept() {
		t.Error("a refused form was saved in part")
	}
	o.post("alice", path, "was.verifyToken", "", "verifyToken", token).redirectsTo(path + "?done=saved")
	o.get("alice", path).want(200, `name="verifyToken" placeholder="kept"`).lacks(token, "Verify-token")
	o.get("bob", path).want(200, "<dd>kept</dd>").lacks(token)
	o.post("alice", path, "was.verifyToken", "", "verifyToken", "", "paused", "on").redirectsTo(path + "?done=saved")
	if !kept() {
		t.Error("a form without a token has removed it")
	}
	o.post("alice", path, "was.verifyToken", "", "verifyToken", "two words\x00").want(422, `id="set-verifyToken-wrong"`)
	o.post("alice", path, "was.verifyToken", "", "verifyToken", "default").redirectsTo(path + "?done=saved")
	if kept() {
		t.Error("it was not removed")
	}
}

func TestSettingsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	const path = "/aliases/shop/settings"
	for _, bad := range []struct{ key, value, id string }{
		{"offlineStatus", "199", "set-offlineStatus-wrong"},
		{"offlineStatus", "600", "set-offlineStatus-wrong"},
		{"offlineStatus", "", "set-offlineStatus-wrong"},
		{"offlineStatus", "2e2", "set-offlineStatus-wrong"},
		{"hostHeader", "a\r\nX-Evil: 1", "set-hostHeader-wrong"},
		{"hostHeader", "", "set-hostHeader-wrong"},
		{"responseTimeout", "2h", "set-responseTimeout-wrong"},
		{"responseTimeout", "soon", "set-responseTimeout-wrong"},
		{"retention", "-1h", "set-retention-wrong"},
		{"retention", "99999999d", "set-retention-wrong"},
		{"autoDeliver", "maybe", "set-autoDeliver-wrong"},
	} {
		o.post("alice", path, bad.key, bad.value, "paused", "on").want(422, `id="`+bad.id+`"`, `aria-invalid="true"`)
	}
	o.post("alice", path, "offlineStatus", "77", "retention", "soon").want(422, `value="77"`, `value="soon"`, "set-retention-wrong", "set-offlineStatus-wrong")
	a, err := o.Alias(t.Context(), o.actor("alice"), "shop")
	if err != nil || !reflect.DeepEqual(a.Settings, relay.DefaultSettings()) {
		t.Errorf("a refused form changed %+v, %v", a, err)
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	const path = "/aliases/shop/settings"
	o.post("alice", path+"/members", "user", "nobody").want(422, "no account with that name", `value="nobody"`)
	o.post("alice", path+"/members", "user", "").want(422)
	o.post("alice", path+"/members", "user", "alice").want(422, "owns shop")
	o.post("alice", path+"/members", "user", " bob ").redirectsTo(path + "?done=member-added")
	o.get("alice", path).want(200, "bob", path+"/members/bob/remove")

	// A member can see the settings and leave the alias, and can do nothing else.
	o.get("bob", path).want(200, "Only the owner, alice, can change them.", "Leave shop").
		lacks("Save settings", "Delete alias", "Hand over", "Add member", `name="offlineStatus"`)
	o.post("bob", path, "paused", "on").want(403, "only alice")
	o.post("bob", path+"/members", "user", "root").want(403)
	o.post("bob", path+"/transfer", "user", "bob").want(403)
	o.post("bob", path+"/remove", "confirm", "shop").want(403)
	o.post("bob", path+"/members/root/remove").want(403)
	o.post("bob", path+"/members/bob/remove").redirectsTo("/?done=left")
	o.get("bob", path).want(404)
	o.post("alice", path+"/members/bob/remove").want(404)
	o.post("alice", path+"/members", "user", "bob").redirectsTo(path + "?done=member-added")
	o.post("alice", path+"/members/bob/remove").redirectsTo(path + "?done=member-removed")
}

func TestTransferAndRemove(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	const path = "/aliases/shop/settings"
	o.post("alice", path+"/transfer", "user", "nobody").want(422, "there is no such account", `value="nobody"`)
	o.post("alice", path+"/transfer", "user", "alice").want(422, "already own this alias")
	o.post("alice", path+"/transfer", "user", "bob").redirectsTo("/?done=transferred")
	o.get("alice", path).want(404)
	for _, typed := range []string{"", "Shop", "shop2"} {
		o.post("bob", path+"/remove", "confirm", typed).want(422, "type shop to delete it", `value="`+typed+`"`)
	}
	o.post("bob", path+"/remove", "confirm", " shop ").redirectsTo("/?done=alias-removed")
	o.get("bob", "/?done=alias-removed").want(200, "The alias was deleted.").lacks(`href="/aliases/shop"`)
	o.get("bob", path).want(404)
}

// TestForeignAliasesLookUnknown: the settings of an alias of another account get the same answer as those of
// an unknown alias, even for admins.
func TestForeignAliasesLookUnknown(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	for _, user := range []string{"bob", "root"} {
		for path, fields := range map[string][]string{
			"": {"paused", "on"}, "/members": {"user", "bob"}, "/members/alice/remove": {}, "/transfer": {"user", "bob"}, "/remove": {"confirm", "shop"},
		} {
			foreign := o.post(user, "/aliases/shop/settings"+path, fields...).want(404)
			unknown := o.post(user, "/aliases/none/settings"+path, fields...).want(404)
			if foreign.body != unknown.body {
				t.Errorf("%s: a foreign alias answers differently:\n%s\n%s", path, foreign.body, unknown.body)
			}
		}
		foreign, unknown := o.get(user, "/aliases/shop/settings").want(404), o.get(user, "/aliases/none/settings").want(404)
		if foreign.body != unknown.body {
			t.Errorf("a foreign alias looks different:\n%s\n%s", foreign.body, unknown.body)
		}
	}
	if a, err := o.Alias(t.Context(), o.actor("alice"), "shop"); err != nil || a.Settings.Paused {
		t.Errorf("alias %+v, %v", a, err)
	}
}

func TestPlotIsHonest(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	a := o.alias("alice", "shop")
	const path = "/aliases/shop"
	o.get("alice", path).want(200, "No events yet.").lacks("<figure", "latency")
	o.event(a, 200, 12*time.Millisecond)
	o.get("alice", path).want(200, "1 event in the last 24 hours, no errors.", "One latency was measured: 12 ms.", "<svg", "1 event").
		lacks("percentile", "95 %  within", "Latency: median")
	o.event(a, 500, 30*time.Millisecond)
	o.event(a, 0, 0)
	o.get("alice", path+"?window=24h").want(200, "in the last 24 hours")
	o.get("alice", path+"?window=1h").want(200, "3 events in the last hour, 2 with an error", "Latency: median 12 ms, slowest 30 ms.",
		`aria-current="true">hour</a>`).lacks("95 % within")
	for range 18 {
		o.event(a, 200, 10*time.Millisecond)
	}
	o.get("alice", path+"?window=7d").want(200, "Latency: median 10 ms, 95 % within 12 ms, slowest 30 ms.").lacks("99 %")
	o.get("alice", path+"?window=nonsense").want(200, `aria-current="true">24 hours</a>`)
	// Bars begin at whole minutes, half hours or hours.
	for window, part := range map[string]time.Duration{"1h": time.Minute, "24h": 30 * time.Minute, "7d": 2 * time.Hour, "30d": 12 * time.Hour} {
		bar := regexp.MustCompile(`since=([^&"]*)&`).FindStringSubmatch(o.get("alice", path+"?window="+window).body)
		if bar == nil {
			t.Fatalf("%s: no bar", window)
		}
		text, _ := url.QueryUnescape(bar[1])
		if from, err := time.Parse(time.RFC3339, text); err != nil || !from.Equal(from.Truncate(part)) {
			t.Errorf("%s: a bar begins at %s", window, text)
		}
	}
}
