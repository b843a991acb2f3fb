package events

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/people"
)

// Limits of the marks and saved searches of users.
const (
	maxMarks    = 1000 // events of an alias that may have a pin, a label or a note
	maxLabel    = 60   // length of a label in characters
	maxNote     = 2000
	maxSearches = 50 // searches that an account can save for an alias
)

// MarkEvent changes the mark of an event, for the owner of its alias. Retention keeps a pinned event. The
// function change gets the current mark and edits it. The error is conflict if the alias already has maxMarks
// events with marks.
func (s *Store) MarkEvent(ctx context.Context, who relay.Actor, id relay.ID, change func(*relay.Mark)) error {
	if err := people.Allow(who, relay.ScopeEventsWrite); err != nil {
		return err
	}
	return s.db.Update(ctx, "mark event", func(c *db.Tx) error {
		e, err := OwnEventForUpdate(c, who, id) // the alias is locked too, because its marks are counted
		if err != nil {
			return err
		}
		mark := e.Mark
		change(&mark)
		mark.Label, mark.Note = strings.TrimSpace(mark.Label), strings.TrimSpace(mark.Note)
		if err := checkMark(mark); err != nil {
			return err
		}
		if mark == e.Mark {
			return nil
		}
		if err := setMark(c, &e, mark); err != nil {
			return err
		}
		c.Publish(relay.Change{Kind: relay.ChangeEvent, Alias: e.AliasID, Event: id})
		text := map[bool]string{true: "pinned", false: "not pinned"}[mark.Pinned] // the text omits the note, which may be private
		if mark.Label != "" {
			text += ", label " + mark.Label
		}
		return people.AuditOfAlias(c, who, e.AliasID, "event.mark", id.String(), text+" of "+e.Alias)
	})
}

func checkMark(m relay.Mark) error {
	switch {
	case utf8.RuneCountInString(m.Label) > maxLabel:
		return people.Invalid("label", nil, fmt.Sprintf("must have at most %d characters", maxLabel))
	case !record.IsSafeText(m.Label) || !utf8.ValidString(m.Label):
		return people.Invalid("label", nil, "must be one line of text without control characters")
	case strings.Contains(m.Label, "*"):
		return people.Invalid("label", nil, "must not contain *, which matches any ending in a filter")
	case utf8.RuneCountInString(m.Note) > maxNote:
		return people.Invalid("note", nil, fmt.Sprintf("must have at most %d characters", maxNote))
	}
	return nil
}

func setMark(c *db.Tx, e *relay.Event, m relay.Mark) error {
	if _, err := c.Exec(`DELETE FROM event_marks WHERE event_id = ?`, e.ID); err != nil || m == (relay.Mark{}) {
		return err
	}
	var n int
	if err := c.Get(&n, `SELECT COUNT(*) FROM event_marks WHERE alias_id = ?`, e.AliasID); err != nil {
		return err
	}
	if n >= maxMarks {
		return relay.Errorf(relay.CodeConflict, "%s has %d events with a pin, a label or a note, the most it may have", e.Alias, n)
	}
	c.Do(`INSERT INTO event_marks (alias_id, event_id, pinned, label, note) VALUES (?, ?, ?, ?, ?)`,
		e.AliasID, e.ID, db.BoolToInt(m.Pinned), m.Label, db.StorableText(m.Note))
	return nil
}

// SavedSearches lists the searches that the actor's account has saved for an alias, by name.
func (s *Store) SavedSearches(ctx context.Context, who relay.Actor, alias string) ([]relay.SavedSearch, error) {
	if err := people.Allow(who, relay.ScopeEventsRead); err != nil {
		return nil, err
	}
	return db.Read(ctx, s.db, "read saved searches", func(q db.Query) ([]relay.SavedSearch, error) {
		a, err := people.FindAlias(q, who, alias)
		if err != nil {
			return nil, err
		}
		return db.RowsOf(q, func(r *relay.SavedSearch) []any { return []any{&r.Name, &r.Words} },
			`SELECT name, words FROM saved_searches WHERE alias_id = ? AND account_id = ? ORDER BY name`, a.ID, who.Account)
	})
}

// SaveSearch saves a search of an alias for the actor's account, and replaces a search with the same name. If
// the given search has no words, SaveSearch deletes the search with that name.
func (s *Store) SaveSearch(ctx context.Context, who relay.Actor, alias string, search relay.SavedSearch) error {
	if err := people.Allow(who, relay.ScopeEventsRead); err != nil {
		return err
	}
	search.Name, search.Words = strings.TrimSpace(search.Name), strings.TrimSpace(search.Words)
	switch {
	case search.Name == "" || utf8.RuneCountInString(search.Name) > maxLabel || !record.IsSafeText(search.Name) || !utf8.ValidString(search.Name):
		return people.Invalid("name", nil, fmt.Sprintf("must be one line of 1 to %d characters", maxLabel))
	case len(search.Words) > maxNote:
		return people.Invalid("words", nil, fmt.Sprintf("must have at most %d bytes", maxNote))
	}
	if _, err := record.ParseFilterWords(search.Words); err != nil {
		return err
	}
	return s.db.Update(ctx, "save search", func(c *db.Tx) error {
		if err := people.LockAccount(c, who.Account); err != nil { // the lock ensures that the count of saved searches stays right
			return err
		}
		a, err := people.AliasForUpdate(c, func() (*relay.Alias, error) { return people.FindAlias(c.Query, who, alias) })
		if err != nil {
			return err
		}
		if _, err := c.Exec(`DELETE FROM saved_searches WHERE alias_id = ? AND account_id = ? AND name = ?`, a.ID, who.Account, search.Name); err != nil || search.Words == "" {
			return err
		}
		var n int
		if err := c.Get(&n, `SELECT COUNT(*) FROM saved_searches WHERE alias_id = ? AND account_id = ?`, a.ID, who.Account); err != nil {
			return err
		}
		if n >= maxSearches {
			return relay.Errorf(relay.CodeConflict, "%d searches are saved for %s already; forget one first", n, a.Name)
		}
		c.Do(`INSERT INTO saved_searches (alias_id, account_id, name, words) VALUES (?, ?, ?, ?)`,
			a.ID, who.Account, search.Name, db.StorableText(search.Words))
		return nil
	})
}
