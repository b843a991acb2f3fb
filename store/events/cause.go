package events

import (
	"maps"
	"net/http"
	"slices"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/record"
	"relay/store/db"
)

// Bounds of the responses that one list reads to show error texts: their number, and the total size of
// their bodies. SQLite reads a whole body even if only its start is needed.
const (
	maxCauses     = listMost
	maxCauseBytes = 8 << 20
)

// answer is the start of a response.
type answer struct {
	event relay.ID
	n     int
	head  []byte
	body  relay.Body
}

func (a *answer) sizes() []any { return []any{&a.event, &a.n, &a.body.Size, &a.body.Stored} }

func (a *answer) bytes() []any { return []any{&a.event, &a.n, &a.head, &a.body.Data} }

const (
	answerSizes = `SELECT p.event_id, p.n, p.size, p.stored FROM payloads p `
	answerBytes = `SELECT p.event_id, p.n, SUBSTR(p.head, 1, ?), SUBSTR(CASE WHEN p.parts = 0 THEN p.body
		ELSE (SELECT data FROM body_chunks c WHERE c.event_id = p.event_id AND c.n = p.n AND c.i = 0) END, 1, ?) FROM payloads p `
)

// readCauses sets the error texts of list rows, from their responses. Once it has read maxCauses responses,
// or maxCauseBytes of bodies, the other rows get no error text.
func readCauses(q db.Query, list []relay.Event) error {
	asked := map[relay.ID]*relay.Event{}
	var ids []relay.ID
	for i := range list {
		if e := &list[i]; e.Status >= http.StatusBadRequest && len(ids) < maxCauses {
			asked[e.ID], ids = e, append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	in, args := db.ColumnIn(`e.id`, ids)
	return readAnswers(q, `JOIN events e ON p.event_id = e.id AND p.n = e.ended_n WHERE `+in, args, func(a *answer) {
		if e := asked[a.event]; e != nil {
			e.Cause = record.Cause(e.Status, a.head, &a.body)
		}
	})
}

// readAttemptCauses sets the error texts of attempts, from their responses. Once it has read maxCauseBytes of
// bodies, the other attempts get no error text.
func readAttemptCauses(q db.Query, heads map[relay.AttemptRef]*relay.Attempt) error {
	ids, numbers := map[relay.ID]bool{}, map[int]bool{}
	for ref, a := range heads {
		if a.Status >= http.StatusBadRequest {
			ids[ref.Event], numbers[ref.N] = true, true
		}
	}
	if len(ids) == 0 {
		return nil
	}
	where, args, err := sqlx.In(`WHERE p.event_id IN (?) AND p.n IN (?)`, slices.Collect(maps.Keys(ids)), slices.Collect(maps.Keys(numbers)))
	if err != nil {
		return err
	}
	return readAnswers(q, where, args, func(r *answer) {
		if a := heads[relay.AttemptRef{Event: r.event, N: r.n}]; a != nil {
			a.Cause = record.Cause(a.Status, r.head, &r.body)
		}
	})
}

// readAnswers reads the start of responses, and calls the function each for every one of them. The parameter
// where is SQL text that selects the responses. readAnswers skips responses without a body, and those that
// exceed maxCauseBytes together with the bodies before them.
func readAnswers(q db.Query, where string, args []any, each func(*answer)) error {
	found, err := db.RowsOf(q, (*answer).sizes, answerSizes+where, args...)
	if err != nil {
		return err
	}
	left := int64(maxCauseBytes)
	byRef := map[relay.AttemptRef]*answer{}
	var ids []relay.ID
	for i := range found {
		a := &found[i]
		if left -= min(a.body.Stored, relay.InlineBody); a.body.Stored > 0 && left >= 0 {
			byRef[relay.AttemptRef{Event: a.event, N: a.n}], ids = a, append(ids, a.event)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	in, some := db.ColumnIn(`p.event_id`, ids)
	read, err := db.RowsOf(q, (*answer).bytes, answerBytes+where+` AND `+in, append(append([]any{record.CauseHead, record.CauseStart}, args...), some...)...)
	for i := range read {
		if a := byRef[relay.AttemptRef{Event: read[i].event, N: read[i].n}]; a != nil {
			a.head, a.body.Data = read[i].head, read[i].body.Data
			each(a)
		}
	}
	return err
}
