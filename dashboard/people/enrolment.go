package people

import (
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
)

// enrolmentLogin shows visitors who are not logged in how to log in. It does not look at the enrolment, so
// the text is the same for a link that belongs to none.
func (p pages) enrolmentLogin(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	p.RememberPage(w, r)
	return page.WithStatus{Component: enrolmentLoginPage(p.LoginCommand(), r.URL.Path), Status: http.StatusUnauthorized}, nil
}

func (p pages) enrolment(r *http.Request, who relay.Actor, code page.Form) (templ.Component, error) {
	e, err := p.Enrolments.Enrolment(r.Context(), r.PathValue("code"))
	if err != nil {
		return nil, enrolmentError(err)
	}
	// After a wrong code the user types the whole code again.
	code.Values.Del("code")
	return enrolmentPage(who.AccountName, e, code.Named("link")), nil
}

// approve registers the key if the typed code is the one that the client of the key shows. The link alone
// approves nothing, because another person may have sent the link to the user.
func (p pages) approve(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	if err := p.Limits.Create(who); err != nil {
		return nil, err
	}
	f := page.Posted("link", r)
	code := page.Field(r, "code")
	var err error
	if code == "" {
		f.Errors["code"] = "type the code that the terminal shows"
	} else {
		err = p.Enrolments.ApproveEnrolment(r.Context(), who, r.PathValue("code"), code)
	}
	return page.FormPage(p.enrolment).Finish(w, r, who, f, enrolmentError(err), "code", "/account?done=key-approved")
}

func enrolmentError(err error) error {
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Errorf(relay.CodeNotFound, "no key is waiting for approval here: it was approved or canceled, or its two minutes are over; run ssh link@… again for a new link")
	}
	return err
}
