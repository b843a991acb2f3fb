package page

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// SeeOther answers a form that ended with err. Without an error the browser continues to path, so that a
// reload of the page does not send the form again; an error is returned unchanged.
func SeeOther(w http.ResponseWriter, r *http.Request, err error, path string) (templ.Component, error) {
	if err == nil {
		http.Redirect(w, r, path, http.StatusSeeOther)
	}
	return nil, err
}

// maxForm bounds the body of a form, in bytes.
const maxForm = 1 << 20

// readForm reads the fields of a posted form into r.PostForm.
func readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return relay.Errorf(relay.CodeBodyTooLarge, "the form is too large; at most 1 MiB is taken")
	}
	if err != nil {
		return relay.Errorf(relay.CodeBadRequest, "the form could not be read; go back and send it again")
	}
	return nil
}

// Form is the content of a form that is shown again after a mistake: the typed values, and the errors
// by field. A Form with only a name is empty.
type Form struct {
	Name   string // distinguishes the forms of a page
	Values url.Values
	Errors map[string]string // errors, by field
}

// Posted returns the form in the body of a request.
func Posted(name string, r *http.Request) Form {
	return Form{Name: name, Values: r.PostForm, Errors: map[string]string{}}
}

// Named returns f if it has that name, else an empty form of that name. A request posts at most one of
// the forms of a page.
func (f Form) Named(name string) Form {
	if f.Name == name {
		return f
	}
	return Form{Name: name}
}

// ID returns the id of a field's input, unique in the page.
func (f Form) ID(field string) string { return f.Name + "-" + field }

// Has reports whether the checkbox with a value was ticked.
func (f Form) Has(field, value string) bool { return slices.Contains(f.Values[field], value) }

// Failed reports whether the form has an error.
func (f Form) Failed() bool { return len(f.Errors) > 0 }

// Attributes returns the attributes that connect an input to its hint and its error.
func (f Form) Attributes(field, hint string) templ.Attributes {
	at := templ.Attributes{}
	var by []string
	if hint != "" {
		by = append(by, f.ID(field)+"-hint")
	}
	if f.Errors[field] != "" {
		at["aria-invalid"] = "true"
		// If several inputs have autofocus, the browser uses only the first one.
		at["autofocus"] = true
		by = append(by, f.ID(field)+"-wrong")
	}
	if len(by) > 0 {
		at["aria-describedby"] = strings.Join(by, " ")
	}
	return at
}

// WasField returns the name of the hidden input with the value that a field had when the page was made.
func WasField(field string) string { return "was." + field }

// plainText returns a value without the spaces around it and with the line ends that the server uses.
func plainText(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// Change compares the posted value of a field, typed, with the value that the field had when the page was
// made. want reports whether the user changed the field; it is true for every posted value if the form does
// not have that former value. stale reports whether now, the stored value, was changed to something else
// after the page was made.
func (f Form) Change(field, now string) (typed string, want, stale bool) {
	values := f.Values[field]
	if len(values) == 0 {
		return "", false, false
	}
	// A toggle is posted as off, followed by on if it is ticked.
	typed = plainText(values[len(values)-1])
	if !f.Values.Has(WasField(field)) {
		return typed, true, false
	}
	was, now := plainText(f.Values.Get(WasField(field))), plainText(now)
	return typed, typed != was, typed != was && now != was && now != typed
}

// Shown returns the value of a field when its form is shown again: the typed value, or the current one
// if the user typed none.
func (f Form) Shown(field, now string) string {
	if typed, want, _ := f.Change(field, now); want {
		return typed
	}
	return now
}

// StaleText returns the message that a field was changed after the page was made; by is the account
// that changed it, "" = unknown.
func StaleText(now, by string) string {
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

// LastChange looks for the newest entry of the audit log that has this action and target, and whose detail
// contains word. It returns the actor and the time of the entry as a text, "" = there is none.
func (p *Pages) LastChange(r *http.Request, who relay.Actor, action, target, word string) string {
	entries, err := p.Accounts.Audit(r.Context(), who, lastChanges)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.Action == action && e.Target == target && strings.Contains(e.Detail, word) {
			return record.SafeTextMax(e.Actor, 100) + " " + RelativeText(e.At)
		}
	}
	return ""
}

// lastChanges is the number of entries of the audit log that LastChange reads.
const lastChanges = 200

// ErrStale is the error of a form if one of its fields was changed after the page was made.
var ErrStale = relay.Errorf(relay.CodeConflict, "this was changed after the page was loaded")

// AddError adds err to the form if it is an error that the user can correct. The form shows it at the field
// that err names, or else at the field that the parameter field names. AddError returns every other error
// unchanged.
func (f Form) AddError(err error, field string) error {
	e := relay.AsError(err)
	switch {
	case e == nil:
		return nil
	case e.Code == relay.CodeValidationFailed && len(e.Fields) > 0:
		for _, bad := range e.Fields {
			name := strings.TrimPrefix(bad.Location, "body.")
			if !f.Values.Has(name) {
				name = field
			}
			f.Errors[name] = bad.Message
		}
		return nil
	case e.Code == relay.CodeValidationFailed, e.Code == relay.CodeConflict:
		f.Errors[field] = e.Detail
		return nil
	}
	return err
}

// Field returns the value of a posted field without the spaces that copying adds at its ends.
func Field(r *http.Request, name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }

// FormPage renders a page with a form, which is empty or has the values posted last.
type FormPage func(r *http.Request, who relay.Actor, f Form) (templ.Component, error)

// Empty shows the page with all of its forms empty.
func (render FormPage) Empty(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	return render(r, who, Form{})
}

// Finish redirects to path after form f succeeded. Otherwise it shows the page of the form again, with err at
// the field that err names, or else at the field that the parameter field names.
func (render FormPage) Finish(w http.ResponseWriter, r *http.Request, who relay.Actor, f Form, err error, field, path string) (templ.Component, error) {
	if err = f.AddError(err, field); err != nil {
		return nil, err
	}
	if len(f.Errors) == 0 {
		return SeeOther(w, r, nil, path)
	}
	page, err := render(r, who, f)
	return WithStatus{page, http.StatusUnprocessableEntity}, err
}

// successTexts has the messages after a form succeeded, by the value of the query parameter done. The address
// of the page has only this value, so that a link cannot make the page show another text.
var successTexts = map[string]string{
	"saved":          "The settings were saved.",
	"member-added":   "The member was added.",
	"secret-added":   "The secret was added. It judges the requests of its sender from now on, and the newest 200 again.",
	"secret-removed": "The secret was removed.",
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

// SuccessText returns the message about the form that led to this page, "" for none.
func SuccessText(r *http.Request) string { return successTexts[r.URL.Query().Get("done")] }

const keyHint = "the one line of a .pub file, such as ~/.ssh/id_ed25519.pub; ssh-keygen -t ed25519 makes one"

// Secret is a new secret that a page shows once.
type Secret struct {
	Title, What, Secret, Then, Example, Back string
}
