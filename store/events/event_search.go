package events

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"time"

	"relay"
	"relay/record"
	"relay/record/body"
)

const (
	searchMost  = 128      // events whose heads and bodies one query reads
	searchBytes = 1 << 20  // bytes of heads and inline bodies that one query reads; the last message may exceed this number
	searchRows  = 2048     // messages whose sizes one query reads
	searchBody  = 32 << 20 // bytes of a decoded body that are searched for text
	searchJSON  = 8 << 20  // bytes of a decoded body in which fields are looked for; the body is held in memory
	// searchOver is the additional time that a list has after its budget for the first event that it
	// searches, so that every page gets past one event.
	searchOver = 100 * time.Millisecond
)

// contentFilter is the part of a filter that searches heads and bodies. It searches the bytes in Go
// and not in SQL, because bodies may be compressed and JSON may be escaped.
type contentFilter struct {
	texts       *record.TextSearch
	fields      []relay.FieldFilter
	requestOnly bool // the filter has no texts, and looks for fields in requests only
}

// contentRow has the columns of a stored message that a search needs.
type contentRow struct {
	EventID relay.ID `db:"event_id"`
	N       int      `db:"n"`
	Parts   int      `db:"parts"`
	Bytes   int64    `db:"bytes"`
	Head    []byte   `db:"head"`
	Body    []byte   `db:"body"`
}

// contents reads the messages of the first rows, by event. n is the number of these rows, which
// searchBytes and searchRows limit; 0 = the first event alone exceeds the limits.
func (l *listing) contents(rows []relay.Event) (byEvent map[relay.ID][]contentRow, n int, err error) {
	var sizes []contentRow
	if err := l.contentRows(&sizes, contentSizes, rows, l.content.which()+` ORDER BY event_id DESC, n LIMIT ?`, searchRows+1); err != nil {
		return nil, 0, err
	}
	bytes, total := map[relay.ID]int64{}, int64(0)
	for i := range sizes {
		bytes[sizes[i].EventID] += sizes[i].Bytes
	}
	known := func(id relay.ID) bool { return len(sizes) <= searchRows || id != sizes[searchRows].EventID }
	for n < len(rows) && known(rows[n].ID) {
		if total += bytes[rows[n].ID]; total > searchBytes {
			break
		}
		n++
	}
	if n == 0 {
		return nil, 0, nil
	}
	var list []contentRow
	if err := l.contentRows(&list, contentBytes, rows[:n], l.content.which()+` ORDER BY event_id, n`); err != nil {
		return nil, 0, err
	}
	byEvent = make(map[relay.ID][]contentRow, n)
	for _, c := range list {
		byEvent[c.EventID] = append(byEvent[c.EventID], c)
	}
	return byEvent, n, nil
}

const (
	contentSizes = `event_id, n, parts, COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(body), 0) AS bytes`
	contentBytes = `event_id, n, parts, head, body`
)

// which returns the condition that selects the messages to search.
func (c *contentFilter) which() string {
	if c.requestOnly {
		return ` AND n = 0`
	}
	return ``
}

// contentRows reads columns of the messages of events. The range of ids, in addition to their list,
// lets Postgres skip the partitions of other days.
func (l *listing) contentRows(to *[]contentRow, columns string, rows []relay.Event, rest string, args ...any) error {
	ids := make([]relay.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return l.AllIn(to, `SELECT `+columns+` FROM payloads WHERE event_id IN (?) AND event_id >= ? AND event_id <= ?`+rest,
		append([]any{ids, ids[len(ids)-1], ids[0]}, args...)...)
}

// matchesMany is matches for an event whose messages are too many, or too large, to be read together.
// It reads them in slices, until the result is certain or the time is used up.
func (l *listing) matchesMany(e *relay.Event, until time.Time) (bool, error) {
	m := l.begin(e, until)
	for after := -1; ; {
		var sizes, list []contentRow
		if err := l.contentRows(&sizes, contentSizes, []relay.Event{*e}, l.content.which()+` AND n > ? ORDER BY n LIMIT ?`, after, searchRows); err != nil || len(sizes) == 0 {
			return m.fits(), err
		}
		total, n := sizes[0].Bytes, 1
		for n < len(sizes) && total+sizes[n].Bytes <= searchBytes {
			total, n = total+sizes[n].Bytes, n+1
		}
		last := sizes[n-1].N
		if err := l.contentRows(&list, contentBytes, []relay.Event{*e}, l.content.which()+` AND n > ? AND n <= ? ORDER BY n`, after, last); err != nil {
			return false, err
		}
		if decided, err := m.look(list); decided || err != nil {
			return err == nil && m.fits(), err
		}
		after = last
	}
}

// errSearchTime ends the search of a body when the time for it is used up.
var errSearchTime = errors.New("the time of a search is used up")

// matches reports whether the content of an event matches the filter. The search ends with errSearchTime at the
// time until.
func (l *listing) matches(e *relay.Event, messages []contentRow, until time.Time) (bool, error) {
	m := l.begin(e, until)
	_, err := m.look(messages)
	return err == nil && m.fits(), err
}

// matching is the search in the content of one event.
type matching struct {
	*listing
	until     time.Time
	fieldsFit bool
}

func (l *listing) begin(e *relay.Event, until time.Time) *matching {
	l.content.texts.Reset()
	l.content.texts.LookDecoded(e.Target)
	return &matching{listing: l, until: until, fieldsFit: len(l.content.fields) == 0}
}

func (m *matching) fits() bool { return m.content.texts.Found() && m.fieldsFit }

// look searches messages. decided reports that no other message of the event can change the result.
func (m *matching) look(messages []contentRow) (decided bool, err error) {
	texts := m.content.texts
	for i := range messages {
		if !time.Now().Before(m.until) {
			return false, errSearchTime
		}
		row := &messages[i]
		label := body.LabelOf(row.Head)
		if row.N == 0 && !m.fieldsFit {
			stored, err := io.ReadAll(io.LimitReader(m.stored(row, m.until), searchJSON))
			if err := m.broken(err); err != nil {
				return false, err
			}
			if m.fieldsFit = record.MatchBody(m.content.fields, label, stored, len(stored) == searchJSON, searchJSON); !m.fieldsFit {
				return true, nil
			}
		}
		if texts.Found() || texts.LookDecoded(row.Head) {
			continue
		}
		if row.Parts == 0 && label.IsPlain(row.Body) {
			texts.Search(row.Body)
			continue
		}
		_, err := texts.Body(label, m.stored(row, m.until), searchBody)
		if err := m.broken(err); err != nil {
			return false, err
		}
	}
	return m.fits(), nil
}

// broken returns the error that ended the search of a body, or nil if the compressed data of the body is
// damaged or incomplete. In that case the search covers the bytes before the damage.
func (l *listing) broken(err error) error {
	if errors.Is(err, errSearchTime) {
		return err
	}
	return l.partError
}

// stored returns a reader of the stored body of a message. Its reads fail after the time in the parameter until.
func (l *listing) stored(m *contentRow, until time.Time) io.Reader {
	var r io.Reader = bytes.NewReader(m.Body)
	if m.Parts > 0 {
		r = &partReader{l: l, id: m.EventID, n: m.N, parts: m.Parts}
	}
	return &searchReader{r: r, until: until}
}

// partReader reads a body that is stored as parts. A part that was deleted in the meantime ends the body. An
// error of the database is also stored in partError of the listing, because a decompressor may hide it.
type partReader struct {
	l     *listing
	id    relay.ID
	n, i  int
	parts int
	rest  []byte
}

func (r *partReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.i < r.parts && r.l.partError == nil {
		var parts [][]byte
		if r.l.partError = r.l.All(&parts, partQuery, r.id, r.n, r.i); len(parts) == 0 {
			r.i = r.parts
		} else {
			r.rest, r.i = parts[0], r.i+1
		}
	}
	if len(r.rest) == 0 {
		return 0, cmp.Or(r.l.partError, io.EOF)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// searchReader ends a body when the time for its search is used up.
type searchReader struct {
	r     io.Reader
	until time.Time
}

func (s *searchReader) Read(p []byte) (int, error) {
	if !time.Now().Before(s.until) {
		return 0, errSearchTime
	}
	return s.r.Read(p)
}

// siftContent adds the rows whose content matches the filter, and reports whether the page is full
// afterwards. An event whose bodies take longer than the budget becomes the first of the next page.
// The first event of a page gets searchOver more time; bodies that are left after that time are not searched.
func (l *listing) siftContent(page *relay.Page, rows []relay.Event) (full bool, err error) {
	last := l.before
	for len(rows) > 0 {
		byEvent, n, err := l.contents(rows)
		if err != nil {
			return false, err
		}
		many := n == 0 // the first event exceeds the bounds and is searched alone
		n = max(n, 1)
		for i := range rows[:n] {
			e := &rows[i]
			if len(page.Events) == l.limit {
				page.Next = page.Events[l.limit-1].ID.String()
				return true, nil
			}
			until, first := l.until, last == l.start
			if now := time.Now(); first && until.Before(now) {
				until = now.Add(searchOver)
			} else if first {
				until = until.Add(searchOver)
			}
			var fits bool
			if many {
				fits, err = l.matchesMany(e, until)
			} else {
				fits, err = l.matches(e, byEvent[e.ID], until)
			}
			switch {
			case errors.Is(err, errSearchTime) && !first:
				page.Next = last.String()
				return true, nil
			case err != nil && !errors.Is(err, errSearchTime):
				return false, err
			case fits:
				page.Events = append(page.Events, *e)
			}
			last, page.SearchedBackTo = e.ID, e.ReceivedAt
			if !time.Now().Before(l.until) {
				page.Next = e.ID.String()
				return true, nil
			}
		}
		rows = rows[n:]
	}
	return false, nil
}
