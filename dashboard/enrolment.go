package dashboard

import (
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
)

// enrolmentRoutes are there only where keys can wait. Strangers are told how to get in, in
// the same words for links behind which nothing waits.
func (p *pages) enrolmentRoutes(mux *http.ServeMux) {
	if p.Enrolments == nil {
		return
	}
	stranger := func(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
		p.rememberPage(w, r)
		return withStatus{enrolmentLoginPage(p.loginCommand(), r.URL.Path), http.StatusUnauthorized}, nil
	}
	mux.Handle("GET /link/{code}", p.signedInOrElse(formPage(p.enrolment).empty, stranger))
	mux.Handle("POST /link/{code}", p.signedInOrElse(p.approve, stranger))
}

func (p *pages) enrolment(r *http.Request, who relay.Actor, code form) (templ.Component, error) {
	e, err := p.Enrolments.Enrolment(r.Context(), r.PathValue("code"))
	if err != nil {
		return nil, enrolmentError(err)
	}
	code.values.Del("code") // a wrong code is typed again, not edited
	return enrolmentPage(who.AccountName, e, code.named("link")), nil
}

// approve lets the key in when the code is the one that its holder sees: the link
// alone, which somebody else may have sent, approves nothing.
func (p *pages) approve(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Limits.Create(who); err != nil {
		return nil, err
	}
	f := posted("link", r)
	code := field(r, "code")
	var err error
	if code == "" {
		f.errors["code"] = "type the code that the terminal shows"
	} else {
		err = p.Enrolments.ApproveEnrolment(r.Context(), who, r.PathValue("code"), code)
	}
	return formPage(p.enrolment).finish(w, r, who, f, enrolmentError(err), "code", "/account?done=key-approved")
}

func enrolmentError(err error) error {
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Errorf(relay.CodeNotFound, "no key is waiting for approval here: it was approved or canceled, or its two minutes are over; run ssh link@… again for a new link")
	}
	return err
}
