package events

import "relay"

// payloadRowOverhead is what a row of payloads counts in the storage of an alias in
// addition to its bytes. PayloadBytes is the SQL expression for both together.
const (
	payloadRowOverhead = 512
	PayloadBytes       = `(512 + stored + COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) + COALESCE(LENGTH(extra), 0) + COALESCE(LENGTH(interim), 0))`
)

// StoredSize is how many bytes a message counts in the storage of its alias.
func StoredSize(m *relay.Message, extra ...[]byte) int64 {
	n := payloadRowOverhead + int64(len(m.Head)+len(m.Lines))
	if m.Body.Parts > 0 {
		n += m.Body.Stored
	} else {
		n += int64(len(m.Body.Data))
	}
	for _, b := range extra {
		n += int64(len(b))
	}
	return n
}

// AttemptStoredSize is how many bytes an attempt counts.
func AttemptStoredSize(a *relay.Attempt) int64 {
	if !HasPayload(a) {
		return 0
	}
	return StoredSize(&a.Response, a.SentHead, packInterim(a.Interim))
}
