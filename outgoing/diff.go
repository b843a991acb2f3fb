package outgoing

import (
	"context"

	"relay"
	"relay/compose"
	"relay/record"
)

// Diff compares the request of a new event with the original request. To show every change, it also lists
// header lines that comparisons of stored events leave out because these lines always differ.
func (x *Made) Diff(ctx context.Context) (*record.Diff, error) {
	sides := twoBodies{x.Base.Body, x.Request.Body}
	d, err := record.ReadDiff(ctx, sides, sides.compared(0, x.Base), sides.compared(1, x.Request.Shown()), record.DiffRequest)
	if err != nil {
		return nil, err
	}
	for i := range d.Headers {
		d.Headers[i].Noise = false
	}
	for i := range d.Body.Changes {
		d.Body.Changes[i].Noise = false
	}
	d.Headline = "nothing but the time at which it is sent"
	if n := len(x.Request.Changes); n > 0 {
		d.Headline = record.Count(n, "change", "changes")
	}
	return d, nil
}

// twoBodies holds the bodies of two requests that are not stored as events.
type twoBodies [2][]byte

func (b twoBodies) compared(i int, r *compose.Request) record.Compared {
	return record.Compared{Event: &relay.Event{ID: relay.ID{15: byte(i)}, Method: r.Method(), Target: []byte(r.Path()), Request: r.Message()}}
}

// BodyPart implements record.BodySource.
func (b twoBodies) BodyPart(_ context.Context, id relay.ID, _, _ int) ([]byte, error) {
	return b[id[15]], nil
}
