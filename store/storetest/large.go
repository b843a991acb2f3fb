package storetest

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"relay"
	"relay/store"
)

// testLarge checks bodies in parts: they are read with the event and part by part, searched across the border
// of two parts, and deleted. An event with a missing part is refused.
func testLarge(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	body := bytes.Repeat([]byte("0123456789abcdef"), (3*relay.BodyPart+1000)/16)
	copy(body[relay.BodyPart-3:], "needle") // the word is at the border of two parts
	e := b.newEvent(b.hooks, relay.StateDelivering, "/large", "")
	parts := b.chunks(e.ID, 0, body)
	e.Request.Body = relay.Body{
		Parts: parts, Stored: int64(len(body)), Size: int64(len(body)), SHA256: sha256.Sum256(body), State: relay.BodyComplete,
	}
	b.ok(b.Accept(e))
	a := ended(1, relay.StateDelivered, 200, "")
	a.Response.Body = relay.Body{
		Parts: b.chunks(e.ID, 1, body[:relay.BodyPart+1]), Stored: relay.BodyPart + 1, Size: 1 << 30, State: relay.BodyOverLimit,
	}
	b.ok(b.Finish(e.ID, a, ""))

	got, err := b.Event(t.Context(), b.alice, e.ID, relay.BodyPart+10)
	b.must(err)
	if !bytes.Equal(got.Request.Body.Data, body[:relay.BodyPart+10]) || got.Request.Body.Parts != 4 || got.Request.Body.SHA256 != sha256.Sum256(body) {
		t.Errorf("request body: %d bytes, %d parts", len(got.Request.Body.Data), got.Request.Body.Parts)
	}
	res := got.Attempts[0].Response.Body
	if res.Parts != 2 || res.Size != 1<<30 || res.Stored != relay.BodyPart+1 || res.State != relay.BodyOverLimit {
		t.Errorf("response body: %+v", res)
	}
	var whole []byte
	for i := range got.Request.Body.Parts {
		p, err := b.BodyPart(t.Context(), e.ID, 0, i)
		b.must(err)
		whole = append(whole, p...)
	}
	if !bytes.Equal(whole, body) {
		t.Error("the parts are not the body")
	}
	_, err = b.BodyPart(t.Context(), e.ID, 0, 99)
	b.want(relay.CodeNotFound, err)

	for text, hits := range map[string]int{"needle": 1, "needles": 0} {
		if found := b.walk(b.alice, relay.Filter{Texts: []relay.TextFilter{{Text: text}}}); len(found) != hits {
			t.Errorf("search for %s found %d", text, len(found))
		}
	}

	lost := b.newEvent(b.hooks, relay.StateDelivering, "/lost", "")
	lost.Request.Body = relay.Body{Parts: 2, Size: 300 << 10, State: relay.BodyComplete}
	b.ok(b.Chunk(lost.ID, 0, 0, body[:relay.BodyPart]))
	b.want(relay.CodeStoreUnavailable, b.done(b.Accept(lost)))
	_, err = b.Event(t.Context(), b.alice, lost.ID, 0)
	b.want(relay.CodeNotFound, err)

	b.must(b.DeleteEvent(t.Context(), b.alice, e.ID))
	_, err = b.BodyPart(t.Context(), e.ID, 0, 0)
	b.want(relay.CodeNotFound, err)
}

func (b *fixture) chunks(id relay.ID, n int, body []byte) (parts int) {
	for len(body) > 0 {
		p := body[:min(relay.BodyPart, len(body))]
		// The ticket is not awaited: the store must keep the order of the steps, so that this chunk is stored
		// before the next step.
		b.Chunk(id, n, parts, p)
		body, parts = body[len(p):], parts+1
	}
	return parts
}
