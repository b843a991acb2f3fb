package dashboard_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"relay"
)

// TestStaleForms: for each setting and mark, a form that was opened earlier does not undo a change of another
// field. A change of the same field to another value is refused once, and accepted when it is sent again.
func TestStaleForms(t *testing.T) {
	t.Parallel()
	type values = map[string]string
	settings := values{
		"offlineStatus": "503", "autoDeliver": "on", "hostHeader": "rewrite", "forwarded": "on", "freshConnections": "on",
		"responseTimeout": "30m", "retention": "7d", "paused": "on",
	}
	other := values{"offlineStatus": "404", "hostHeader": "localhost:3000", "responseTimeout": "5m", "retention": "12h"}
	mark := values{"label": "bug-17", "note": "two\nlines"}
	for _, form := range []struct {
		page, action string
		first, other values
	}{
		{"/aliases/hook/settings", "/aliases/hook/settings", settings, other},
		{"EVENT", "EVENT/mark", mark, values{"label": "bug-18", "note": "else\n<b>"}},
	} {
		keys := slices.Sorted(maps.Keys(form.first))
		for i, mine := range keys {
			theirs := keys[(i+1)%len(keys)]
			t.Run(mine+" and "+theirs, func(t *testing.T) {
				t.Parallel()
				r := newFixture(t)
				id := r.send(post("/one", "{}"))
				fill := strings.NewReplacer("EVENT", "/events/"+id.String())
				at := fill.Replace(form.action)
				read := func() values {
					f := r.formAt(fill.Replace(form.page), at)
					if form.action == "EVENT/mark" {
						f = r.formWith(fill.Replace(form.page), at, "label")
					}
					now := values{}
					for key := range form.first {
						list := f.fields[key]
						now[key] = list[len(list)-1]
					}
					return now
				}
				open := func() *pageForm { return r.formWith(fill.Replace(form.page), at, mine) }
				type in struct {
					f   *pageForm
					key string
					to  string
				}
				send := func(x in, status int) string {
					x.f.fields[x.key] = append(x.f.fields[x.key][:0:0], x.to)
					return r.submit(at, x.f.fields, status)
				}
				before := read()
				stale, early := open(), open()
				send(in{open(), theirs, form.first[theirs]}, 200)
				// This form changes another field.
				send(in{stale, mine, form.first[mine]}, 200)
				want := maps.Clone(before)
				want[theirs], want[mine] = form.first[theirs], form.first[mine]
				if got := read(); !maps.Equal(got, want) {
					t.Errorf("now %v, want %v", got, want)
				}
				// A form that changes the same field to the same value is accepted. One that changes it
				// to another value is refused.
				send(in{early, mine, form.first[mine]}, 200)
				if form.other[mine] == "" {
					return
				}
				late := open()
				late.fields["was."+mine] = []string{before[mine]}
				page := send(in{late, mine, form.other[mine]}, 409)
				contains(t, "conflict", page, "after this page was loaded", "alice", "nothing was saved")
				if got := read(); !maps.Equal(got, want) {
					t.Errorf("a refused form has made %v of %v", got, want)
				}
				// The page keeps the typed value. Its form now knows the change of the other user, so the
				// form is accepted.
				var again *pageForm
				for _, f := range formsOf(t, at, page) {
					if f.action == at && f.fields.Has(mine) {
						again = f
					}
				}
				if got := again.fields.Get(mine); got != form.other[mine] {
					t.Errorf("typed %q is shown as %q", form.other[mine], got)
				}
				r.submit(at, again.fields, 200)
				want[mine] = form.other[mine]
				if got := read(); !maps.Equal(got, want) {
					t.Errorf("saved again: %v, want %v", got, want)
				}
			})
		}
	}
}

// formWith returns the form of a page that is sent to the address action and has a field with the name in the
// parameter field.
func (r *fixture) formWith(page, action, field string) *pageForm {
	r.t.Helper()
	for _, f := range formsOf(r.t, page, r.get(page, 200)) {
		if f.action == action && f.fields.Has(field) {
			return f
		}
	}
	r.t.Fatalf("%s has no form for %s with %s", page, action, field)
	return nil
}

// TestStaleSettingsStartNothing: a form that was opened before a pause does not end the pause, and starts no
// delivery. A form with a mistake and a stale field reports both.
func TestStaleSettingsStartNothing(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/one", "{}"))
	const at = "/aliases/hook/settings"
	stale := r.formAt(at, at)
	_, err := r.s.SetAlias(t.Context(), relay.System(), "hook", func(s *relay.Settings) error { s.Paused = true; return nil })
	must(t, err)
	r.await("the pause", func() bool { return strings.Contains(r.get("/aliases/hook", 200), "paused") })
	r.submit("/events/"+id.String()+"/replay", nil, 200)
	stale.fields.Set("offlineStatus", "503")
	r.submit(at, stale.fields, 200)
	a, err := r.s.Alias(t.Context(), relay.System(), "hook")
	must(t, err)
	e, err := r.s.Event(t.Context(), relay.System(), id, 0)
	must(t, err)
	if !a.Settings.Paused || a.Settings.OfflineStatus != 503 || e.State != relay.StateQueued {
		t.Errorf("settings %+v, the replay is %s", a.Settings, e.State)
	}
	wrong := r.formAt(at, at)
	_, err = r.s.SetAlias(t.Context(), relay.System(), "hook", func(s *relay.Settings) error {
		s.HostHeader, s.AutoDeliver = "rewrite", true
		return nil
	})
	must(t, err)
	wrong.fields["retention"], wrong.fields["hostHeader"] = []string{"soon"}, []string{"localhost:1"}
	page := r.submit(at, wrong.fields, 409)
	contains(t, "both", page, "set-retention-wrong", "changed to “rewrite”", `value="localhost:1"`, `value="soon"`)
	var again *pageForm
	for _, f := range formsOf(t, at, page) {
		if f.action == at && f.fields.Has("autoDeliver") {
			again = f
		}
	}
	if got := again.fields["autoDeliver"]; fmt.Sprint(got) != "[off on]" {
		t.Errorf("autoDeliver is shown as %v", got)
	}
}

// TestBrowserStaleNote: live updates do not change a note that a user is typing. Saving it reports the change
// of another user, and saving it again keeps the typed note.
func TestBrowserStaleNote(t *testing.T) {
	r := newFixture(t)
	id := r.send(post("/one", `{}`))
	b := newBrowser(t, r)
	b.expect(http.StatusConflict)
	b.open("/events/" + id.String())
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `document.querySelector("#mark").open = true; document.querySelector("#mark-note").value = "mine"; undefined`)
	mark := func(note, label string) {
		must(t, r.s.MarkEvent(t.Context(), relay.System(), id, func(m *relay.Mark) { m.Note, m.Label = note, label }))
	}
	mark("theirs", "bug-1")
	b.until(`document.querySelector(".marks .note")?.textContent === "theirs"`)
	save := `document.querySelector("#mark button").click(); undefined`
	value[any](b, save)
	b.until(`document.querySelector("#mark .failure")?.textContent.includes("theirs")`)
	if text := value[string](b, `document.querySelector("#mark-note").value`); text != "mine" {
		t.Errorf("what was typed is now %q", text)
	}
	value[any](b, save)
	b.until(`document.querySelector(".marks .note")?.textContent === "mine"`)
	if e, err := r.s.Event(t.Context(), relay.System(), id, 0); err != nil || e.Mark.Label != "bug-1" {
		t.Errorf("the mark is %+v, %v", e.Mark, err)
	}
}
