package store_test

import (
	"testing"
	"time"

	"relay"
	"relay/store"
)

// If a response is stored too late, Finish is called twice: with the response, and with the error
// response-not-stored that the caller got. The record then shows the error and no response, and the bytes of the
// response are not counted.
func TestEndStoredLate(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage = 1 << 30
		s := mustServe(t, o)
		alias := withAlias(t, s)
		var size int64 // stored bytes of an event without a response
		for _, together := range []bool{false, true} {
			before := s.Retention().StoredBytes
			e := eventAt(s, alias, time.Now(), relay.StateDelivering, "x")
			late := answered(1, "the answer")
			told := &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: late.EndedAt, Error: &relay.Fault{Code: relay.CodeResponseNotStored}}
			if together {
				settled(t, s.Accept(e), s.Finish(e.ID, late, ""), s.Finish(e.ID, told, ""))
			} else {
				settled(t, s.Accept(e))
				size = s.Retention().StoredBytes - before
				settled(t, s.Finish(e.ID, late, ""))
				settled(t, s.Finish(e.ID, told, ""))
			}
			got, err := s.Event(t.Context(), system, e.ID, 100)
			if err != nil {
				t.Fatal(err)
			}
			a := got.Attempts[0]
			if got.Error == nil || got.Error.Code != relay.CodeResponseNotStored || a.Error == nil || a.Error.Code != relay.CodeResponseNotStored ||
				a.State != relay.StateDelivered || a.HasResponse || len(a.Response.Body.Data) > 0 {
				t.Errorf("together %t: %+v of %+v", together, a, got)
			}
			if added := s.Retention().StoredBytes - before; added != size {
				t.Errorf("together %t: %d bytes stored, want %d", together, added, size)
			}
		}
	})
}
