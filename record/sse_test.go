package record

import (
	"testing"

	"relay"
)

// A viewer sees no difference between an item that was encoded once for all viewers and an
// item that was not.
func TestItemIsEncodedOnce(t *testing.T) {
	item := relay.FeedItem{Name: "event", Data: []byte(`{"id":"evt_1"}`)}
	var alone, shared EventStream
	alone.Write("a-1", item.Name, item.Data)
	CompleteItem(&item, "a-1")
	shared.Item(&item)
	if alone.buf.String() != shared.buf.String() || item.ID != "a-1" || string(item.Data) != `{"id":"evt_1"}` {
		t.Errorf("%q, %q, %+v", alone.buf.String(), shared.buf.String(), item)
	}
	_ = append(item.Data, "more"...) // appending to Data must not change the bytes that other viewers get
	if got := string(item.SSE); got != alone.buf.String() {
		t.Errorf("%q", got)
	}
}
