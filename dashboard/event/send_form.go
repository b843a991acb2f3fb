package event

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/compose"
	"relay/dashboard/body"
	"relay/dashboard/page"
	"relay/outgoing"
	"relay/record"
	reading "relay/record/body"
	"relay/wire"
)

// Bounds of the page that makes a new event.
const (
	maxEdited  = 192 << 10 // largest body that the form can change, in bytes; in a form its encoding is up to three times as long
	shownBytes = 64 << 10  // bytes of a request in its preview
)

// bodyNote returns the reason why a body cannot be changed in a form, "" = it can.
func bodyNote(r *compose.Request) string {
	const otherwise = " It is sent as it is; relay send --data @FILE replaces it."
	switch {
	case len(reading.LabelOf(r.Head).Codings) > 0:
		return "The body has a content coding." + otherwise
	case len(r.Body) > maxEdited:
		return "The body is too long to be changed here." + otherwise
	case !utf8.Valid(r.Body) || bytes.ContainsFunc(r.Body, func(c rune) bool { return c < ' ' && !strings.ContainsRune("\t\n\r", c) }):
		return "The body is not text." + otherwise
	}
	return ""
}

// withLF returns a text with the line ends of a text area, LF.
func withLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// rowsFor returns the number of lines of the text area for a text; the argument most is its upper bound.
func rowsFor(text string, most int) string {
	lines := 2
	for line := range strings.Lines(text) {
		lines += 1 + len(line)/120
	}
	return strconv.Itoa(min(max(lines, 4), most))
}

// headerLines returns the header lines of a request that can be changed. shown has them in the form that the
// page shows, exact has them unchanged.
func headerLines(r *compose.Request) (shown, exact []compose.Header) {
	for _, f := range wire.Fields(r.Head) {
		name, value := string(f.Name), string(f.Value)
		if strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding") {
			// The values of these lines are computed from the body.
			continue
		}
		exact = append(exact, compose.Header{Name: name, Value: value})
		shown = append(shown, compose.Header{Name: record.SafeText(name), Value: record.SafeText(value)})
	}
	return shown, exact
}

// fillForm fills the empty fields with the values of the request from which the new one is made.
func fillForm(v *sendView) {
	set := func(field, value string) {
		if !v.Form.Values.Has(field) {
			v.Form.Values.Set(field, value)
		}
	}
	set(fieldMethod, record.SafeText(v.Base.Method()))
	set(fieldPath, record.SafeText(v.Base.Path()))
	shown, _ := headerLines(v.Base)
	var lines strings.Builder
	for _, h := range shown {
		lines.WriteString(h.Name + ": " + h.Value + "\n")
	}
	set(fieldHeaders, lines.String())
	if v.BodyNote == "" {
		set(fieldBody, string(v.Base.Body))
	}
}

// orderOf reads the form as an order: the changes of base, the request from which the new one is made.
// Mistakes are stored in the form, and ok is then false.
func orderOf(a *relay.Alias, f *page.Form, base *compose.Request) (o *outgoing.Order, ok bool) {
	o = &outgoing.Order{Alias: a, From: f.Values.Get(fieldFrom), Sample: f.Values.Get(fieldSample), Sign: f.Values.Get(fieldSign), NewID: f.Values.Get(fieldNewID) == "on"}
	if o.Sign == signGiven {
		o.Sign, o.Given = outgoing.SignAuto, &record.GivenSecret{Value: strings.TrimSpace(f.Values.Get(fieldSecret)), Custom: strings.TrimSpace(f.Values.Get(fieldCustom))}
		if o.Given.Value == "" {
			f.Errors[fieldSecret] = "Enter the secret that signs, or choose another signature."
		}
	}
	for _, field := range []string{fieldSecret, fieldCustom} {
		if o.Given == nil && strings.TrimSpace(f.Values.Get(field)) != "" {
			f.Errors[field] = "It is not used: choose the signature by a secret that you enter, or clear this field."
		}
	}
	if strings.HasPrefix(o.Sign, "sec_") {
		o.Secret, o.Sign = o.Sign, ""
	}
	if typed := strings.TrimSpace(f.Values.Get(fieldMethod)); typed != record.SafeText(base.Method()) {
		o.Edit.Method = typed
	}
	if typed := strings.TrimSpace(f.Values.Get(fieldPath)); typed != record.SafeText(base.Path()) {
		o.Edit.Path = typed
	}
	if o.From == "" && o.Sample == "" && o.Edit.Method == "" {
		o.Edit.Method = base.Method()
	}
	if f.Values.Has(fieldBody) {
		if typed := withLF(f.Values.Get(fieldBody)); typed != withLF(string(base.Body)) {
			if n := bytes.Count(base.Body, []byte("\r\n")); n > 0 && n == bytes.Count(base.Body, []byte("\n")) {
				typed = strings.ReplaceAll(typed, "\n", "\r\n")
			}
			o.Edit.Body = append([]byte{}, typed...)
		}
	}
	if f.Values.Has(fieldHeaders) {
		if wrong := editHeaders(&o.Edit, f.Values, base); wrong != "" {
			f.Errors[fieldHeaders] = wrong
		}
	}
	return o, !f.Failed()
}

// editHeaders adds to the edit the names whose header lines were changed. A line that is not shown byte for
// byte keeps its original bytes unless the user changed it. wrong describes a line that is no header line, ""
// = none.
func editHeaders(e *compose.Edit, values url.Values, base *compose.Request) (wrong string) {
	shown, exact := headerLines(base)
	var typed []compose.Header
	for i, line := range strings.Split(withLF(values.Get(fieldHeaders)), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Sprintf("line %d is not as expected: Name: value", i+1)
		}
		typed = append(typed, compose.Header{Name: name, Value: strings.TrimSpace(value)})
	}
	valuesOf := func(list []compose.Header, name string) (values []string) {
		for _, h := range list {
			if strings.EqualFold(h.Name, name) {
				values = append(values, strings.TrimSpace(h.Value))
			}
		}
		return values
	}
	for i, h := range shown {
		if !slices.ContainsFunc(typed, func(t compose.Header) bool { return strings.EqualFold(t.Name, h.Name) }) && !slices.Contains(e.Remove, exact[i].Name) {
			e.Remove = append(e.Remove, exact[i].Name)
		}
	}
	for _, h := range typed {
		if slices.Equal(valuesOf(shown, h.Name), valuesOf(typed, h.Name)) {
			continue
		}
		if i := slices.IndexFunc(shown, func(s compose.Header) bool { return strings.EqualFold(s.Name, h.Name) && s.Value == h.Value }); i >= 0 {
			h.Value = strings.TrimSpace(exact[i].Value)
		}
		e.Header = append(e.Header, h)
	}
	return ""
}

// previewOf returns the view of a request before it is sent.
func previewOf(ctx context.Context, o *outgoing.Order, made *outgoing.Made) (*previewView, error) {
	text := made.Request.Shown().Wire()
	v := &previewView{SignedBy: made.Outgoing.Sent.SignedBy, Cut: len(text) > shownBytes}
	v.Text = body.Visible(bytes.ReplaceAll(text[:min(len(text), shownBytes)], []byte("\r\n"), []byte("\n")))
	if o.From == "" && o.Sample == "" {
		return v, nil
	}
	d, err := made.Diff(ctx)
	if err != nil {
		return nil, err
	}
	was := "the sample"
	if o.From != "" {
		was = "as it came"
	}
	v.Diff = body.DiffOf(d, "What differs", [2]string{was, "the new event"})
	return v, nil
}
