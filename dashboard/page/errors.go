package page

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"

	"github.com/a-h/templ"

	"relay"
)

// explain returns the error page for err. If the request came from the page's script, it returns only the
// error message, which the script shows.
func (p *Pages) explain(w http.ResponseWriter, r *http.Request, err error) WithStatus {
	e := relay.AsError(err)
	status := relay.Status(e.Code)
	if status == http.StatusInternalServerError && r.Context().Err() == nil {
		// An error after the end of the context is not logged, because no user waits for the page any more.
		p.Log.Error("page failed", "path", r.Pattern, "err", err)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Code == relay.CodeLoginTooOld {
		// The cookie remembers the page of the refused form, so that the login leads back to it.
		http.SetCookie(w, p.NextCookie(p.PageOf(referer(r)), nextAge))
	}
	retry := "" // address of a retry link; "" for forms
	if status == http.StatusServiceUnavailable && r.Method == http.MethodGet {
		retry = LocalPath(url.QueryEscape(r.URL.RequestURI()))
	}
	title := cmp.Or(statusTitles[status], "Something went wrong")
	if t, is := errors.AsType[Titled](err); is {
		title = t.Title
	}
	body := errorPage(status, title, e.Detail, retry)
	switch {
	case e.Code == relay.CodeLoginTooOld:
		body = loginAgainPage(e.Detail, p.LoginCommand())
	case Partial(r):
		body = errorFragment(status, e.Detail)
	case e.Code == relay.CodeStoreUnavailable:
		body = outagePage(e.Detail, cmp.Or(retry, "/"))
	}
	return WithStatus{body, status}
}

// Titled is an error whose page has a title of its own.
type Titled struct {
	error
	Title string
}

// WithTitle gives the page of an error a title.
func WithTitle(title string, err error) error { return Titled{err, title} }

// Unwrap returns the error.
func (t Titled) Unwrap() error { return t.error }

// WithStatus is a component that is sent with a status other than 200, such as a form that is shown
// again with its errors.
type WithStatus struct {
	templ.Component
	Status int
}

// statusOf returns the status with which a component is sent.
func statusOf(c templ.Component) int {
	status := 0
	switch c := c.(type) {
	case WithStatus:
		status = c.Status
	case *Regions:
		status = c.Status
	}
	return cmp.Or(status, http.StatusOK)
}

// statusTitles are the page titles of statuses, in plain words.
var statusTitles = map[int]string{
	http.StatusBadRequest:            "Invalid input",
	http.StatusUnauthorized:          "Not logged in",
	http.StatusForbidden:             "Not allowed",
	http.StatusNotFound:              "Not found",
	http.StatusConflict:              "Conflict",
	http.StatusRequestEntityTooLarge: "Too large",
	http.StatusUnprocessableEntity:   "Invalid input",
	http.StatusTooManyRequests:       "Too many requests",
	http.StatusServiceUnavailable:    "Unavailable",
}
