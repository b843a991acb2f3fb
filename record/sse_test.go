package record

import (
	"testing"

	"relay"
)

// An item that is encoded once for all viewers has the same bytes as one that is encoded for a single viewer.
// Appending to the Data of the item does not change the encoded bytes.
func TestItemIsEncodedOnce(t *testing.T) {
	item := relay.FeedItem{Name: "event", Data: []byte(`{"id":"evt_1"}`)}
	var alone, shared EventStream
	alone.Write("a-1", item.Name, item.Data)
	CompleteItem(&item, "a-1")
	shared.Item(&item)
	if alone.buf.String() != shared.buf.String() || item.ID != "a-1" || string(item.Data) != `{"id":"evt_1"}` {
		t.Errorf("%q, %q, %+v", alone.buf.String(), shared.buf.String(), item)
	}
	_ = append(item.Data, "more"...)
	if got := string(item.SSE); got != alone.buf.String() {
		t.Errorf("%q", got)
	}
}
