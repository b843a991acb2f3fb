package record

import (
	"context"
	"errors"
	"strings"
	"testing"

	"relay"
	"relay/record/body"
)

// noParts is a BodySource that returns the field text as the only part of every body.
type noParts struct{ text string }

func (s noParts) BodyPart(context.Context, relay.ID, int, int) ([]byte, error) {
	return []byte(s.text), nil
}

// While two large bodies are being read, a comparison of large bodies waits, and returns an error if its
// context ends. A comparison of small bodies does not wait.
func TestLargeDiffsWaitForEachOther(t *testing.T) {
	for range 2 {
		done, err := body.Turn(t.Context(), body.Large+1)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	diff := func(ctx context.Context, text string) (*Diff, error) {
		e := &relay.Event{Request: relay.Message{Head: []byte("POST / HTTP/1.1\r\n\r\n"), Body: relay.Body{Stored: int64(len(text)), Size: int64(len(text))}}}
		return ReadDiff(ctx, noParts{text}, Compared{Event: e}, Compared{Event: e}, DiffRequest)
	}
	if _, err := diff(t.Context(), `{"a":1}`); err != nil {
		t.Errorf("small bodies: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := diff(gone, "["+strings.Repeat("{},", 200_000)+"{}]"); !errors.Is(err, context.Canceled) {
		t.Errorf("large bodies did not wait: %v", err)
	}
}
