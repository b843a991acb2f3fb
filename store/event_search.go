package store

import (
	"bytes"
	"fmt"
	"time"

	"relay"
)

// textFilter searches path, heads and bodies, of requests and responses. Large bodies are
// searched one by one afterwards. OFFSET prevents a plan in which Postgres searches all stored
// bodies first and then compares the ids of the matches.
func (l *listing) textFilter() {
	in := func(column string) string { return fmt.Sprintf(l.d.contains, column) }
	l.and(`(`+in(`e.target`)+` OR EXISTS (SELECT 1 FROM payloads p WHERE p.event_id = e.id AND (`+in(`p.head`)+` OR `+in(`p.body`)+` OR p.parts > 0) LIMIT 1 OFFSET 0))`,
		l.text, l.text, l.text)
}

// searchAlone is the longest time for which a list searches the large bodies of one event.
// The whole list has opTimeout.
const searchAlone = 3 * time.Second

// found reports whether a row that matches the rest of the filter has the text. SQL does not
// search parts, so it also returns rows whose large bodies do not have the text. When the
// search of these bodies takes longer than the budget, the event becomes the first of the next
// page, which searches it for longer. Bodies that are not searched by then are skipped.
func (l *listing) found(e *relay.Event, first bool) (hit, later bool, err error) {
	if len(l.text) == 0 || bytes.Contains(e.Target, l.text) {
		return true, false, nil
	}
	// The bytes stay in the database: an event may have hundreds of attempts.
	var inline []int
	in := func(column string) string { return fmt.Sprintf(l.d.contains, column) }
	if err := l.all(&inline, `SELECT n FROM payloads p WHERE p.event_id = ? AND (`+in(`p.head`)+` OR `+in(`p.body`)+`) LIMIT 1`,
		e.ID, l.text, l.text); err != nil || len(inline) > 0 {
		return len(inline) > 0, false, err
	}
	var large []payloadRow
	if err := l.all(&large, `SELECT n, parts FROM payloads WHERE event_id = ? AND parts > 0 ORDER BY n`, e.ID); err != nil {
		return false, false, err
	}
	until := l.until
	if first {
		until = until.Add(searchAlone)
	}
	for i := range large {
		hit, cut, err := l.foundInParts(e.ID, &large[i], until)
		if err != nil || hit || cut {
			return hit, cut && !first, err
		}
	}
	return false, false, nil
}

// foundInParts searches a large body, also across the borders of its parts, until the time
// given. cut reports whether a part of the body was not searched.
func (l *listing) foundInParts(id relay.ID, p *payloadRow, until time.Time) (hit, cut bool, err error) {
	var tail []byte
	for i := range p.Parts {
		if !time.Now().Before(until) {
			return false, true, nil
		}
		var parts [][]byte
		if err := l.all(&parts, partQuery, id, p.N, i); err != nil {
			return false, false, err
		}
		if len(parts) == 0 {
			return false, false, nil // deleted meanwhile
		}
		if bytes.Contains(append(tail, parts[0]...), l.text) {
			return true, false, nil
		}
		tail = append([]byte(nil), parts[0][max(0, len(parts[0])-len(l.text)+1):]...)
	}
	return false, false, nil
}
