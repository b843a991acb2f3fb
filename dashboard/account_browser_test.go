package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"relay"
)

// TestBrowserAccountPages opens the pages of settings and accounts on a narrow screen: nothing is wider than
// the screen, each field has a label, ids are unique, and some forms work.
func TestBrowserAccountPages(t *testing.T) {
	r := newFixture(t)
	sys := relay.System()
	_, err := r.s.CreateAccount(t.Context(), sys, "root", true)
	must(t, err)
	_, err = r.s.CreateAccount(t.Context(), sys, "somebody.with.a.rather.long.name-for-a-narrow-screen", false)
	must(t, err)
	_, err = r.s.TransferAlias(t.Context(), sys, "hook", "root")
	must(t, err)
	_, err = r.s.CreateAlias(t.Context(), sys, strings.Repeat("long", 15), "root")
	must(t, err)
	must(t, r.s.AddMember(t.Context(), sys, "hook", "alice"))
	invite, err := r.s.CreateInvite(t.Context(), sys, "alice", time.Hour)
	must(t, err)
	r.login("root")
	r.online()
	for range 3 {
		r.send(post("/hook", "{}"))
	}
	b := newBrowser(t, r)
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1, Mobile: true})
	fits := func(path string) {
		t.Helper()
		b.until(`document.readyState === "complete"`) // then the style sheet is loaded
		if wide := value[int](b, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("%s is %d px wide", path, wide)
		}
	}
	for _, path := range []string{"/", "/aliases/hook/settings", "/account", "/admin", "/admin/audit", "/invite/" + invite} {
		b.open(path)
		fits(path)
		// Each input has a label, for users of screen readers.
		if bare := value[string](b, `[...document.querySelectorAll("main input:not([type=hidden]), main select, main textarea")].filter(e => !e.labels.length).map(e => e.name).join()`); bare != "" {
			t.Errorf("%s: no label on %s", path, bare)
		}
		if twice := value[string](b, `[...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i).join()`); twice != "" {
			t.Errorf("%s: ids twice: %s", path, twice)
		}
	}
	b.open("/")
	b.see(`[data-copy="#url-hook"]`)

	b.open("/account")
	b.click(`summary:has(+ form[action="/account/tokens"])`)
	b.write("#token-name", "from a browser")
	b.click(`form[action="/account/tokens"] button`)
	b.see("#secret")
	fits("a new token")
	if secret := value[string](b, `document.querySelector("#secret").textContent`); !strings.HasPrefix(secret, "rly_") {
		t.Errorf("secret %q", secret)
	}
	b.open("/account")
	b.until(`document.body.innerText.includes("from a browser") && !document.body.innerText.includes("rly_")`)

	b.open("/aliases/hook?window=1h")
	b.until(`document.querySelectorAll("#plot rect.all").length > 0`)
	b.open("/aliases/hook/settings")
	b.write("#remove-confirm", "hook")
	b.click(`form[action="/aliases/hook/settings/remove"] button`)
	b.until(`document.body.innerText.includes("The alias was deleted.")`)
}
