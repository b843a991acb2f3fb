package events

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/people"
)

const (
	listLimit    = 50
	listMost     = 200
	listBudget   = 300 * time.Millisecond
	sliceMost    = 4096 // rows of one alias that a query reads; fewer with several aliases
	sliceMany    = 512  // rows of the first slice of a list about more than manyAliases aliases
	sliceLeast   = 10
	arrivalSlack = 2 * time.Hour
)

// Events lists the events that the actor may see, newest first. It reads the rows in slices and stops
// when the page is full, when there is no older event, or when the time budget is used up. In the last
// case the page may have fewer events than requested, and Next continues after the oldest event that was read.
func (s *Store) Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error) {
	release, err := s.heavyReads.acquire(ctx, who)
	if err != nil {
		return relay.Page{}, err
	}
	defer release()
	return db.Read(ctx, s.db, "list events", func(q db.Query) (relay.Page, error) {
		l, err := newListing(q, who, f)
		if err != nil {
			return relay.Page{}, err
		}
		page, err := l.run()
		if err == nil {
			err = readCauses(q, page.Events)
		}
		return page, err
	})
}

// Matches reports whether the filter selects one event that the actor may see, for viewers of live
// events. It applies the filter exactly as a list does.
func (s *Store) Matches(ctx context.Context, who relay.Actor, id relay.ID, f relay.Filter) (bool, error) {
	release, err := s.heavyReads.acquire(ctx, who)
	if err != nil {
		return false, err
	}
	defer release()
	f.Cursor, f.Limit = "", 1
	return db.Read(ctx, s.db, "match event", func(q db.Query) (bool, error) {
		l, err := newListing(q, who, f)
		if err != nil {
			return false, err
		}
		if next := id.Next(); less(next, l.before) {
			l.before = next
		}
		if less(l.floor, id) {
			l.floor = id
		}
		page, err := l.run()
		return len(page.Events) > 0, err
	})
}

// choicesOf is the number of events that Choices reads, from the newest of an alias on. choicesMost is the
// largest number of event types, of senders, and of labels that it returns.
const (
	choicesOf   = 2000
	choicesMost = 60
)

// Choices lists the event types and senders of the newest events of an alias, and the labels of its events.
func (s *Store) Choices(ctx context.Context, who relay.Actor, alias string) (c relay.Choices, err error) {
	err = s.db.View(ctx, "read choices", func(q db.Query) error {
		a, err := people.FindAlias(q, who, alias)
		if err != nil {
			return err
		}
		for column, to := range map[string]*[]string{"provider_type": &c.Types, "provider_name": &c.Providers} {
			if err := q.All(to, `SELECT DISTINCT `+column+` FROM (SELECT `+column+` FROM events WHERE alias_id = ? ORDER BY id DESC LIMIT ?) x
				WHERE `+column+` <> '' ORDER BY `+column+` LIMIT ?`, a.ID, choicesOf, choicesMost); err != nil {
				return err
			}
		}
		return q.All(&c.Labels, `SELECT DISTINCT label FROM event_marks WHERE alias_id = ? AND label <> '' ORDER BY label LIMIT ?`, a.ID, choicesMost)
	})
	return c, err
}

// listing is one list in progress. It reads the events of each of its aliases by the index on alias
// and id, with a query for each alias and slice. With more than manyAliases aliases, and for the
// operator, these queries are too many. The list then reads the events of all aliases by their ids,
// and a condition on the alias selects the visible ones.
type listing struct {
	db.Query
	who     relay.Actor
	limit   int
	until   time.Time // end of the time budget
	aliases []int64   // aliases of the list; not used if byID is set
	byID    bool      // the list looks at the events of all aliases
	where   string    // conditions of the filter on e, the row of the event
	args    []any
	marked  bool           // the filter selects events with marks, of which there are few
	content *contentFilter // nil = the filter needs no heads or bodies
	start   relay.ID       // value of the field before at the start of the list
	before  relay.ID       // exclusive upper bound of the ids
	floor   relay.ID       // inclusive lower bound of the ids
	slice   int
	search  int

	partError error // error of the database during the search of a body
}

func newListing(q db.Query, who relay.Actor, f relay.Filter) (*listing, error) {
	limit := min(cmp.Or(max(f.Limit, 0), listLimit), listMost)
	l := &listing{
		Query: q, who: who, limit: limit, slice: limit + 1, until: time.Now().Add(cmp.Or(max(f.Budget, 0), listBudget)),
		search: searchMost, before: LastID,
	}
	if len(f.Texts)+len(f.JSON) > 0 { // other filters read no heads or bodies
		l.content = &contentFilter{texts: record.NewTextSearch(f.Texts), fields: f.JSON, requestOnly: len(f.Texts) == 0}
	}
	switch {
	case f.Alias != "":
		a, err := people.FindAlias(l.Query, who, f.Alias)
		if err != nil {
			return nil, err
		}
		l.aliases = []int64{a.ID}
	case who.Kind == relay.ActorSystem:
		l.byID = true
	default:
		may, args := people.AliasesAccess(who)
		if err := l.All(&l.aliases, `SELECT al.id FROM aliases al WHERE `+may+` LIMIT ?`, append(args, manyAliases+1)...); err != nil {
			return nil, err
		}
		if l.byID = len(l.aliases) > manyAliases; l.byID {
			l.slice = max(l.slice, sliceMany)
		}
	}
	if f.Cursor != "" {
		id, err := relay.ParseID(f.Cursor)
		if err != nil {
			return nil, listError("cursor", f.Cursor, "this is not a cursor of an earlier page")
		}
		l.before = id
	}
	return l, l.filter(f)
}

func listError(field string, value any, message string) *relay.Error {
	e := relay.Errorf(relay.CodeValidationFailed, "%s: %s", field, message)
	e.Fields = []relay.FieldError{{Location: "query." + field, Message: message, Value: value}}
	return e
}

func (l *listing) and(condition string, args ...any) {
	l.where += " AND " + condition
	l.args = append(l.args, args...)
}

// filter turns a Filter into SQL conditions.
func (l *listing) filter(f relay.Filter) error {
	if f.Method != "" {
		l.and(`UPPER(e.method) = ?`, strings.ToUpper(db.StorableText(f.Method)))
	}
	switch {
	case f.Status == relay.StatusError: // the same rule as relay.IsError
		l.and(`(e.status >= 400 OR e.state IN (?, ?, ?, ?, ?))`, Failed, Interrupted, Canceled, Rejected, Incomplete)
	case f.Status != "":
		low, high, err := statusRange(f.Status)
		if err != nil {
			return err
		}
		l.and(`e.status >= ? AND e.status <= ?`, low, high)
	}
	if f.Path != "" {
		l.and(`e.target >= ?`, []byte(f.Path))
		if end := prefixEnd([]byte(f.Path)); end != nil {
			l.and(`e.target < ?`, end)
		}
	}
	if f.State != "" {
		code, err := StateCode(f.State)
		if err != nil {
			return listError("state", f.State, "expected one of "+strings.Join(States, ", "))
		}
		l.and(`e.state = ?`, code)
	}
	if f.Provider != "" {
		l.and(`e.provider_name = ?`, db.StorableText(f.Provider))
	}
	if f.Handshake != "" {
		l.and(`e.handshake = ?`, db.StorableText(f.Handshake))
	}
	if f.Type != "" {
		condition, args := textLike(`e.provider_type`, f.Type)
		l.and(condition, args...)
	}
	if f.Replayed != nil {
		l.and(`(e.attempts > 1) = (1 = ?)`, db.BoolToInt(*f.Replayed))
	}
	if f.Origin != "" {
		l.and(`(e.sent <> '') = (1 = ?)`, db.BoolToInt(f.Origin == relay.OriginSend))
	}
	l.filterMarks(f)
	l.filterSignature(f)
	return l.filterTime(f)
}

// textLike returns the condition that a column has the given text. For a text that ends with *, the
// column has to begin with the text before the *.
func textLike(column, text string) (condition string, args []any) {
	prefix, wild := strings.CutSuffix(text, "*")
	prefix = db.StorableText(prefix)
	if !wild {
		return column + ` = ?`, []any{prefix}
	}
	// SUBSTR compares exactly, whereas LIKE ignores case and has wildcards.
	return column + ` <> '' AND SUBSTR(` + column + `, 1, ?) = ?`, []any{utf8.RuneCountInString(prefix), prefix}
}

// filterTime adds the conditions on the time of arrival.
func (l *listing) filterTime(f relay.Filter) error {
	// The time in an id is at or after the arrival of its event. After a clock was set back it is
	// later by up to idLead. So ids only limit the range, and the column received_at decides.
	if !f.Since.IsZero() {
		l.and(`e.received_at >= ?`, db.Micros(f.Since))
		l.floor = LowestID(f.Since)
	}
	if !f.Until.IsZero() {
		l.and(`e.received_at < ?`, db.Micros(f.Until))
		lead, err := idLead(l.Query)
		if err != nil {
			return err
		}
		if top := LowestID(f.Until.Add(max(arrivalSlack, lead))); less(top, l.before) {
			l.before = top
		}
	}
	return nil
}

// filterMarks adds the conditions on marks. Only pinned:false selects events without marks. For the
// other conditions the marks are read first, because an alias has at most maxMarks of them.
func (l *listing) filterMarks(f relay.Filter) {
	if f.Pinned != nil && !*f.Pinned {
		l.and(`COALESCE(em.pinned, 0) = 0`)
	}
	if l.marked = f.Label != "" || f.Pinned != nil && *f.Pinned; !l.marked {
		return
	}
	where, args := ``, []any{}
	if !l.byID {
		where, args = db.ColumnIn(`alias_id`, l.aliases)
		where += ` AND `
	}
	if f.Pinned != nil && *f.Pinned {
		where += `pinned = 1 AND `
	}
	if f.Label != "" {
		condition, more := textLike(`label`, f.Label)
		where, args = where+condition+` AND `, append(args, more...)
	}
	l.and(`e.id IN (SELECT event_id FROM event_marks WHERE `+where+`(pinned = 1 OR label <> ''))`, args...)
}

// statusRange parses a status such as 404 or a class such as 2xx.
func statusRange(s string) (low, high int, err error) {
	class := len(s) == 3 && strings.EqualFold(s[1:], "xx")
	if class {
		s = s[:1] + "00"
	}
	n, err := strconv.ParseUint(s, 10, 16) // unlike Atoi, accepts no sign
	switch {
	case err != nil || n < 100 || n > 999 || len(s) != 3:
		return 0, 0, listError("status", s, "expected a status such as 404, a class such as 2xx, or error")
	case class:
		return int(n), int(n) + 99, nil
	}
	return int(n), int(n), nil
}

// prefixEnd returns the lowest byte string after all that start with p, nil if there is none.
func prefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			end := append([]byte(nil), p[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

func less(a, b relay.ID) bool { return string(a[:]) < string(b[:]) }

// run reads the events slice by slice, from the newest to the oldest.
func (l *listing) run() (relay.Page, error) {
	page := relay.Page{Events: []relay.Event{}}
	l.start = l.before
	if !l.byID && len(l.aliases) == 0 {
		return page, nil
	}
	for {
		began := time.Now()
		bound, more, err := l.bound()
		if err != nil {
			return page, err
		}
		full, reached, err := l.page(&page, bound)
		if err != nil || full {
			return page, err
		}
		more = more || reached != bound
		bound, l.before = reached, reached
		if !more {
			page.SearchedBackTo, err = l.oldest()
			return page, err
		}
		page.SearchedBackTo = bound.Time()
		took := time.Since(began)
		if !time.Now().Add(took).Before(l.until) { // the next slice takes as long as the last one, and there is not enough time for it
			page.Next = bound.String()
			return page, nil
		}
		switch { // adapts the size of the slice, so that the list exceeds its budget only a little
		case took < 15*time.Millisecond:
			// A slice ends when one alias has l.slice rows in it. The other aliases usually have fewer rows, so
			// l.slice may exceed sliceMost divided by the number of aliases.
			l.slice = min(l.slice*2, sliceMost, max(8*sliceMost/max(len(l.aliases), 1), listLimit))
		case took > 40*time.Millisecond:
			l.slice = max(l.slice/4, sliceLeast)
		}
	}
}

// bound returns the inclusive lower end of the next slice, in which no alias has more than l.slice rows. more
// reports whether there are rows below that end.
func (l *listing) bound() (bound relay.ID, more bool, err error) {
	bound = l.floor
	if l.marked {
		return bound, false, nil
	}
	if l.byID {
		bound, more, err = l.boundOf(bound, `id < ? AND id >= ?`, l.before, l.floor)
		if start := LowestID(bound.Time()); more && less(l.floor, start) {
			bound = start // the bound is shown as a cursor, which must not be the id of another account's event
		}
		return bound, more, err
	}
	for _, alias := range l.aliases {
		var one bool
		if bound, one, err = l.boundOf(bound, `alias_id = ? AND id < ? AND id >= ?`, alias, l.before, bound); err != nil {
			return bound, false, err
		}
		more = more || one
	}
	return bound, more, nil
}

// boundOf returns the id of the last row of a slice. The parameter where is an SQL condition on the rows; the
// slice has the newest l.slice of those that match. If fewer rows match, boundOf returns the given bound and
// false.
func (l *listing) boundOf(bound relay.ID, where string, args ...any) (relay.ID, bool, error) {
	var ids []relay.ID
	err := l.All(&ids, `SELECT id FROM events WHERE `+where+` ORDER BY id DESC LIMIT 1 OFFSET ?`, append(args, l.slice-1)...)
	if err != nil || len(ids) == 0 {
		return bound, false, err
	}
	return ids[0], true, nil
}

// oldest returns the arrival of the oldest event that this list could contain. With more than
// manyAliases aliases it takes too long to find that event. In this case oldest returns the time when
// the first of the aliases was made, or the lower end of the filter.
func (l *listing) oldest() (time.Time, error) {
	first := int64(0)
	if l.byID && l.who.Kind != relay.ActorSystem {
		may, args := people.AliasesAccess(l.who)
		err := l.Get(&first, `SELECT COALESCE(MIN(al.created_at), 0) FROM aliases al WHERE `+may, args...)
		if l.floor != (relay.ID{}) {
			first = max(first, db.Micros(l.floor.Time()))
		}
		return db.FromMicros(first), err
	}
	look := func(where string, args ...any) error {
		var at []int64
		err := l.All(&at, `SELECT received_at FROM events WHERE `+where+`id >= ? ORDER BY id LIMIT 1`, append(args, l.floor)...)
		if len(at) > 0 && (first == 0 || at[0] < first) {
			first = at[0]
		}
		return err
	}
	if l.byID {
		err := look(``)
		return db.FromMicros(first), err
	}
	for _, alias := range l.aliases {
		if err := look(`alias_id = ? AND `, alias); err != nil {
			return time.Time{}, err
		}
	}
	return db.FromMicros(first), nil
}

// page adds the matching rows with ids from bound up to l.before (exclusive), and reports whether the page is
// full. It returns the id that it reached. This is bound, unless there were too many rows to search at once.
func (l *listing) page(page *relay.Page, bound relay.ID) (full bool, reached relay.ID, err error) {
	// The plus keeps the engine from looking up the events of each alias by the index on alias and id.
	alias := `+e.alias_id`
	may, args := people.AliasAccess(l.who)
	if !l.byID {
		may, args = db.ColumnIn(`e.alias_id`, l.aliases)
		alias = `e.alias_id`
	}
	args = append([]any{l.before, bound}, args...)
	room := l.limit - len(page.Events) + 1
	if l.content != nil {
		room = l.search // room for more rows than the page needs, because some may not match
	}
	rows, err := db.RowsOf(l.Query, markedFields, `SELECT `+markedColumns+` FROM events e JOIN aliases al ON al.id = `+alias+marksJoin+`
		WHERE e.id < ? AND e.id >= ? AND `+may+l.where+` ORDER BY e.id DESC LIMIT ?`, append(append(args, l.args...), room)...)
	if err != nil {
		return false, bound, err
	}
	if l.content != nil {
		if full, err = l.siftContent(page, rows); len(rows) == room {
			bound = rows[room-1].ID
		}
		return full, bound, err
	}
	for i := range rows {
		if len(page.Events) == l.limit {
			page.Next = page.Events[l.limit-1].ID.String()
			return true, bound, nil
		}
		page.Events = append(page.Events, rows[i])
		page.SearchedBackTo = rows[i].ReceivedAt
	}
	return false, bound, nil
}
