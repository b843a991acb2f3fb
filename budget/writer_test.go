package budget

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"relay"
)

// TestAnswersWithinABudget: a response counts in the budget while it is written. If the budget has no space for
// it, the client gets an error before the head of the response is sent. Small responses need no space.
func TestAnswersWithinABudget(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	budget := New(4 * size)
	serve := func(account int64, n int, inside func(a *Writer)) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		a := &Writer{ResponseWriter: rec, Budget: budget, Account: account, Refuse: func(w http.ResponseWriter, err *relay.Error) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(relay.Status(err.Code))
			_, _ = w.Write([]byte(err.Code))
		}}
		defer a.Close()
		a.Header().Set("Content-Length", "9")
		a.Header().Set("Content-Disposition", "attachment")
		a.WriteHeader(http.StatusCreated)
		inside(a)
		if got, err := a.Write(make([]byte, n)); got != n || err != nil {
			t.Errorf("wrote %d of %d: %v", got, n, err)
		}
		return rec
	}
	free := func(*Writer) {}
	if rec := serve(1, size, free); rec.Code != http.StatusCreated || rec.Body.Len() != size {
		t.Errorf("%d, %d bytes", rec.Code, rec.Body.Len())
	}
	serve(1, 10, func(a *Writer) {
		if err := a.Hold(2 * size); err != nil { // more than the share of an account: the whole share is reserved
			t.Fatal(err)
		}
		rec := serve(1, size/2, free)
		if rec.Code != http.StatusServiceUnavailable || rec.Body.String() != relay.CodeOverloaded || rec.Header().Get("Content-Disposition")+rec.Header().Get("Content-Length") != "" {
			t.Errorf("the account holds all it may: %d %q %v", rec.Code, rec.Body, rec.Header())
		}
		if rec := serve(1, 64<<10, free); rec.Code != http.StatusCreated {
			t.Errorf("a small answer: %d", rec.Code)
		}
		if rec := serve(2, size, free); rec.Code != http.StatusCreated {
			t.Errorf("another account: %d", rec.Code)
		}
	})
	if used := budget.Stats().Used; used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}
}

// TestAnswersBreakOff: a response that has begun and finds no space is aborted, so that no client
// takes the part for the whole.
func TestAnswersBreakOff(t *testing.T) {
	t.Parallel()
	budget := New(4 << 20)
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("the answer went on")
		}
		if used := budget.Stats().Used; used != 1<<20 {
			t.Errorf("%d bytes are reserved", used)
		}
	}()
	a := &Writer{ResponseWriter: httptest.NewRecorder(), Budget: budget}
	defer a.Abandon()
	_, _ = a.Write([]byte("begun"))
	if !budget.Reserve(0, 1<<20) {
		t.Fatal("no space")
	}
	_, _ = a.Write(make([]byte, 100<<10))
}

// TestPiecesAreGivenBack: memory that a write has reserved is free again once the peer has read the
// bytes. A response in many pieces holds one piece at a time, and earlier reservations stay.
func TestPiecesAreGivenBack(t *testing.T) {
	t.Parallel()
	const piece = 128 << 10
	budget := New(16 * piece)
	a := &Writer{ResponseWriter: httptest.NewRecorder(), Budget: budget}
	for _, held := range []int64{0, piece / 2, 2 * piece} {
		if err := a.Hold(held); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			_, _ = a.Write(make([]byte, piece))
			if used := budget.Stats().Used; used != held {
				t.Errorf("%d bytes are reserved after a piece was taken, want %d", used, held)
			}
		}
	}
	a.Close()
	if used := budget.Stats().Used; used != 0 {
		t.Errorf("%d bytes are reserved at the end", used)
	}
}
