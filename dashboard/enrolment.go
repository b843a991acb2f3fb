package dashboard

import (
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
)

// enrolmentRoutes are there only where keys can wait.
func (p *pages) enrolmentRoutes(mux *http.ServeMux) {
	if p.Enrolments == nil {
		return
	}
	mux.Handle("GET /link/{code}", p.enrolmentHandler(p.enrolment))
	mux.Handle("POST /link/{code}", p.enrolmentHandler(p.approve))
}

// enrolmentHandler lets signed-in people through. Everybody else is told how to get in, in the
// same words for links behind which nothing waits.
func (p *pages) enrolmentHandler(handle signedInHandler) http.Handler {
	return p.signedInOrElse(handle, func(w http.ResponseWriter, r *http.Request) templ.Component {
		p.rememberPage(w, r)
		return withStatus{enrolmentLoginPage(p.loginCommand(), r.URL.Path), http.StatusUnauthorized}
	})
}

func (p *pages) enrolment(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	return p.renderEnrolment(r, who, form{name: "link"})
}

func (p *pages) renderEnrolment(r *http.Request, who relay.Actor, code form) (templ.Component, error) {
	e, err := p.Enrolments.Enrolment(r.Context(), r.PathValue("code"))
	if err != nil {
		return nil, enrolmentError(err)
	}
	return enrolmentPage(who.AccountName, e, code), nil
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
	if err = f.addError(err, "code"); err != nil {
		return nil, enrolmentError(err)
	}
	if !f.Failed() {
		return seeOther(w, r, "/account?done=key-approved")
	}
	f.values.Del("code") // a wrong code is typed again, not edited
	return formWithErrors(p.renderEnrolment(r, who, f))
}

func enrolmentError(err error) error {
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Errorf(relay.CodeNotFound, "no key is waiting for approval here: it was approved or canceled, or its two minutes are over; run ssh link@… again for a new link")
	}
	return err
}
