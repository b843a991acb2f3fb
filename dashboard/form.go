package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// form is what a form shows again when something in it was wrong: what was typed,
// and by field what is the matter. The zero form but for its name is an empty one.
type form struct {
	name   string // tells the forms of a page apart
	values url.Values
	errors map[string]string
}

// posted is the form that a request brought.
func posted(name string, r *http.Request) form {
	return form{name: name, values: r.PostForm, errors: map[string]string{}}
}

// named is f if it has that name, else an empty form of that name: of the forms of a page
// at most one was posted.
func (f form) named(name string) form {
	if f.name == name {
		return f
	}
	return form{name: name}
}

// ID is the id of a field's input, unique in the page.
func (f form) ID(field string) string { return f.name + "-" + field }

// Has tells whether a box of the field was ticked.
func (f form) Has(field, value string) bool { return slices.Contains(f.values[field], value) }

// Failed tells whether anything is wrong.
func (f form) Failed() bool { return len(f.errors) > 0 }

// attributes point from an input to its hint and to what is wrong with it.
func (f form) attributes(field, hint string) templ.Attributes {
	at := templ.Attributes{}
	var by []string
	if hint != "" {
		by = append(by, f.ID(field)+"-hint")
	}
	if f.errors[field] != "" {
		at["aria-invalid"] = "true"
		at["autofocus"] = true // of several the first one counts
		by = append(by, f.ID(field)+"-wrong")
	}
	if len(by) > 0 {
		at["aria-describedby"] = strings.Join(by, " ")
	}
	return at
}

// wasField is the name of the hidden input with the value that a field had when the page was made.
func wasField(field string) string { return "was." + field }

// plainText is a value without the spaces around it and with the line ends that the server uses.
func plainText(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// change is what a form asks of one field. A form that does not say what the field was asks for
// what it holds.
func (f form) change(field, now string) (typed string, want, stale bool) {
	values := f.values[field]
	if len(values) == 0 {
		return "", false, false
	}
	typed = plainText(values[len(values)-1]) // of a toggle the last one counts
	if !f.values.Has(wasField(field)) {
		return typed, true, false
	}
	was, now := plainText(f.values.Get(wasField(field))), plainText(now)
	return typed, typed != was, typed != was && now != was && now != typed
}

// shown is the value of a field where its form is shown again: what was typed, or what it is now
// where nothing else was typed.
func (f form) shown(field, now string) string {
	if typed, want, _ := f.change(field, now); want {
		return typed
	}
	return now
}

// staleText says that a field was changed after the page was made; by is who did it, "" where
// nobody knows.
func staleText(now, by string) string {
	if now == "" {
		now = "nothing"
	} else {
		now = "“" + record.SafeTextMax(now, 200) + "”"
	}
	if by != "" {
		by = " by " + by
	}
	return "changed to " + now + by + " after this page was loaded; nothing was saved. Save again to replace it"
}

// lastChange tells who made the newest change of a target whose detail holds a word, and when; ""
// where the audit log does not say so.
func (p *pages) lastChange(r *http.Request, who relay.Actor, action, target, word string) string {
	entries, err := p.Accounts.Audit(r.Context(), who, lastChanges)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.Action == action && e.Target == target && strings.Contains(e.Detail, word) {
			return record.SafeTextMax(e.Actor, 100) + " " + relativeText(e.At)
		}
	}
	return ""
}

// lastChanges is how many entries of the audit log lastChange looks at.
const lastChanges = 200

// errStale ends the change of a form of which a field was changed meanwhile.
var errStale = relay.Errorf(relay.CodeConflict, "this was changed after the page was loaded")

// addError notes an error that the person can mend beside its field, or beside the one
// given where the error names none. It gives back every other error.
func (f form) addError(err error, field string) error {
	e := relay.AsError(err)
	switch {
	case e == nil:
		return nil
	case e.Code == relay.CodeValidationFailed && len(e.Fields) > 0:
		for _, bad := range e.Fields {
			name := strings.TrimPrefix(bad.Location, "body.")
			if !f.values.Has(name) {
				name = field
			}
			f.errors[name] = bad.Message
		}
		return nil
	case e.Code == relay.CodeValidationFailed, e.Code == relay.CodeConflict:
		f.errors[field] = e.Detail
		return nil
	}
	return err
}

// field is the value of a posted field without the spaces around it that copying
// brings along.
func field(r *http.Request, name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }

// formPage renders a page with a form, which is empty or what was posted last.
type formPage func(r *http.Request, who relay.Actor, f form) (templ.Component, error)

// empty shows the page with all of its forms empty.
func (render formPage) empty(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	return render(r, who, form{})
}

// finish goes on to path after form f, or shows its page again with what was wrong in the
// form: err is noted beside the field.
func (render formPage) finish(w http.ResponseWriter, r *http.Request, who relay.Actor, f form, err error, field, path string) (templ.Component, error) {
	if err = f.addError(err, field); err != nil {
		return nil, err
	}
	if len(f.errors) == 0 {
		return seeOther(w, r, nil, path)
	}
	page, err := render(r, who, f)
	return withStatus{page, http.StatusUnprocessableEntity}, err
}

// isoTime is a time for machines, and on hover.
func isoTime(t time.Time) string { return record.Time{Time: t}.String() }

// relativeText says when something was or will be, such as 3 min ago; page.js says the same.
func relativeText(t time.Time) string {
	d := time.Until(t)
	ahead := d > 0
	d = d.Abs()
	var text string
	switch {
	case d < 5*time.Second:
		return "now"
	case d < time.Minute:
		text = strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		text = strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 24*time.Hour:
		text = strconv.Itoa(int(d/time.Hour)) + " h"
	case d < 60*24*time.Hour:
		text = strconv.Itoa(int(d/(24*time.Hour))) + " d"
	default:
		return t.UTC().Format(time.DateOnly)
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}

// successTexts are what a page says after a form went through; the key stands in its
// address, so that nothing but these texts can be shown.
var successTexts = map[string]string{
	"saved":          "The settings were saved.",
	"member-added":   "The member was added.",
	"member-removed": "The member was removed and their connections were closed.",
	"left":           "You left the alias.",
	"transferred":    "The alias was transferred.",
	"alias-removed":  "The alias was deleted.",
	"key-added":      "The key was added.",
	"key-approved":   "The key was approved; the waiting terminal shows it. The key can now open tunnels and log in as you. If you did not mean to approve it, remove it below.",
	"key-removed":    "The key was removed and its connections were closed.",
	"token-removed":  "The token was revoked.",
	"logged-out":     "The session was revoked.",
	"user-added":     "The account was created. Invite its user, or add a key with relayd key add.",
	"user-removed":   "The account was removed.",
}

// successText is what became of the form before, "" for none.
func successText(r *http.Request) string { return successTexts[r.URL.Query().Get("done")] }
