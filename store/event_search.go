package store

import (
	"bytes"
	"fmt"

	"relay"
)

// textFilter looks in path, heads and bodies, requests and responses alike. Large
// bodies are looked through one by one afterwards. OFFSET keeps Postgres from looking
// through all that is stored first, in order to compare ids with what it found.
func (l *listing) textFilter() {
	in := func(column string) string { return fmt.Sprintf(l.d.contains, column) }
	l.and(`(`+in(`e.target`)+` OR EXISTS (SELECT 1 FROM payloads p WHERE p.event_id = e.id AND (`+in(`p.head`)+` OR `+in(`p.body`)+` OR p.parts > 0) LIMIT 1 OFFSET 0))`,
		l.text, l.text, l.text)
}

// found looks for the text in a row that fits the rest of the filter; rows whose
// large bodies do not hold it came along because SQL sees no parts.
func (l *listing) found(e *relay.Event) (bool, error) {
	if len(l.text) == 0 || bytes.Contains(e.Target, l.text) {
		return true, nil
	}
	// The bytes stay in the database: an event may have hundreds of attempts.
	var inline []int
	in := func(column string) string { return fmt.Sprintf(l.d.contains, column) }
	if err := l.all(&inline, `SELECT n FROM payloads p WHERE p.event_id = ? AND (`+in(`p.head`)+` OR `+in(`p.body`)+`) LIMIT 1`,
		e.ID, l.text, l.text); err != nil || len(inline) > 0 {
		return len(inline) > 0, err
	}
	var large []payloadRow
	if err := l.all(&large, `SELECT n, parts FROM payloads WHERE event_id = ? AND parts > 0 ORDER BY n`, e.ID); err != nil {
		return false, err
	}
	for i := range large {
		if hit, err := l.foundInParts(e.ID, &large[i]); err != nil || hit {
			return hit, err
		}
	}
	return false, nil
}

// foundInParts looks through a large body, over the seams of its parts too.
func (l *listing) foundInParts(id relay.ID, p *payloadRow) (bool, error) {
	var tail []byte
	for i := range p.Parts {
		var parts [][]byte
		if err := l.all(&parts, partQuery, id, p.N, i); err != nil {
			return false, err
		}
		if len(parts) == 0 {
			return false, nil // deleted meanwhile
		}
		if bytes.Contains(append(tail, parts[0]...), l.text) {
			return true, nil
		}
		tail = append([]byte(nil), parts[0][max(0, len(parts[0])-len(l.text)+1):]...)
	}
	return false, nil
}
