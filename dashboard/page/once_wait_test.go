package page

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/a-h/templ"

	"relay"
)

type accounts = Accounts

// stillRunning is a store that reports for each form that its first submission is still being handled.
type stillRunning struct {
	accounts
	asked int
}

func (s *stillRunning) BeginIdempotent(context.Context, relay.Actor, string, string) (int, []byte, error) {
	s.asked++
	return 0, nil, relay.Errorf(relay.CodeConflict, "still running")
}

// ended is a store that records the status with which EndIdempotent was called.
type ended struct {
	accounts
	status int
}

func (*ended) BeginIdempotent(context.Context, relay.Actor, string, string) (int, []byte, error) {
	return 0, nil, nil
}

func (e *ended) EndIdempotent(_ context.Context, _ relay.Actor, _ string, status int, _ []byte) error {
	e.status = status
	return nil
}

// TestFormWhosePageFailsActsOnce: if the page of a form failed, or its commit has an unknown result, the form
// is stored as handled, so that it does not act again. A form that was refused may be sent again.
func TestFormWhosePageFailsActsOnce(t *testing.T) {
	store := &ended{}
	p := &Pages{Options: Options{Accounts: store}}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(OnceField+"=1"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if err := r.ParseForm(); err != nil {
		t.Fatal(err)
	}
	failed, lost := errors.New("no page"), &relay.Error{Code: relay.CodeStoreUnavailable, Unknown: true}
	broken := templ.ComponentFunc(func(context.Context, io.Writer) error { return failed })
	for _, c := range []struct {
		page      templ.Component
		err, told error
		acted     bool
	}{
		{broken, nil, failed, true},
		// The connection to the database was lost during the commit.
		{nil, lost, lost, true},
		{nil, relay.ErrNotFound, relay.ErrNotFound, false},
	} {
		_, err := p.Once(func(http.ResponseWriter, *http.Request, relay.Actor) (templ.Component, error) {
			return c.page, c.err
		})(httptest.NewRecorder(), r, relay.Actor{})
		if err != c.told || (store.status != 0) != c.acted {
			t.Errorf("%v, and the form ended with %d", err, store.status)
		}
	}
}

// TestSecondFormsAskSeldom: while a second submission of a form waits for the first one, it queries the store
// only 5 to 20 times, because each query is a transaction that writes.
func TestSecondFormsAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stillRunning{}
		p := &Pages{Options: Options{Accounts: store}}
		if _, _, err := p.begin(t.Context(), relay.Actor{}, "form", "POST /"); relay.AsError(err).Code != relay.CodeConflict {
			t.Error(err)
		}
		if store.asked < 5 || store.asked > 20 {
			t.Errorf("asked %d times", store.asked)
		}
	})
}
