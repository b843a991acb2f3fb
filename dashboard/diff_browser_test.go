package dashboard_test

import "testing"

// TestBrowserDifferenceInOneBody: the differences between two responses are marked within one body. The user
// can choose a view of only the changes, or of both bodies side by side.
func TestBrowserDifferenceInOneBody(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.answers(failing(`{"error":"x","handler":"h","n":1,"a":0,"b":0,"c":0,"d":0,"e":0}`))
	id := r.send(post("/a", `{}`)).String()
	r.answers(failing(`{"handler":"h","n":2,"a":0,"b":0,"c":0,"d":0,"e":0,"order":1}`))
	r.replay(id)
	b := newBrowser(t, r)
	b.open("/events/" + id)
	shown := func(sel string) int {
		return value[int](b, `[...document.querySelectorAll("#diff `+sel+`")].filter(e => e.checkVisibility()).length`)
	}
	for view, want := range map[string][4]int{"": {1, 1, 1, 0}, "diff-only": {1, 1, 1, 0}, "diff-sides": {0, 0, 0, 1}} {
		if view != "" {
			b.click("#" + view)
		} else {
			b.see(".marked .same")
		}
		if got := [4]int{shown(".marked .added"), shown(".marked .removed"), shown(".marked .changed"), shown(".sides table")}; got != want {
			t.Errorf("%q shows %v added, removed, changed, tables, want %v", view, got, want)
		}
		if view == "diff-only" && shown(".marked .same") != 0 {
			t.Error("changes only shows what is equal")
		}
		b.click("#diff-one")
	}
	if got := value[string](b, `document.querySelector("#diff .changed").textContent`); got != `~   "n": 1 → 2,` {
		t.Errorf("%q", got)
	}
}
