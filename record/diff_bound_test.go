package record

import (
	"context"
	"errors"
	"strings"
	"testing"

	"relay"
	"relay/record/body"
)

// noParts is a source of bodies that are stored inside their events.
type noParts struct{ text string }

func (s noParts) BodyPart(context.Context, relay.ID, int, int) ([]byte, error) {
	return []byte(s.text), nil
}

// At most a fixed number of large comparisons run at the same time, because each one takes up to 252
// MiB for two arrays of 2 MiB. Further large comparisons wait until the context of their caller
// ends; small ones do not wait.
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
