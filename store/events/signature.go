package events

import (
	"context"
	"encoding/json"
	"strings"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/people"
)

// SignatureText returns the stored form of a Signature: the verdict, a space, and the other fields as JSON; ""
// for nil. The verdict comes first, so that lists can filter by it.
func SignatureText(s *relay.Signature) string {
	if s == nil {
		return ""
	}
	stored := *s
	stored.Provider, stored.Message = db.StorableText(stored.Provider), db.StorableText(stored.Message)
	text, _ := json.Marshal(&stored) // never fails, because the fields are texts and a time
	return s.Verdict + " " + string(text)
}

// signatureColumn returns the destination of a column with a Signature; an empty text becomes nil.
func signatureColumn(to **relay.Signature) db.Column {
	return func(stored any) {
		var text string
		switch v := stored.(type) {
		case string:
			text = v
		case []byte:
			text = string(v)
		}
		verdict, rest, ok := strings.Cut(text, " ")
		if *to = nil; ok {
			*to = new(relay.Signature)
			_ = json.Unmarshal([]byte(rest), *to) // if a later relayd wrote the text, at least the verdict is known
			(*to).Verdict = verdict
		}
	}
}

// StoreSignature replaces the stored verdict on the signature of an event that the actor may read.
func (s *Store) StoreSignature(ctx context.Context, who relay.Actor, id relay.ID, judged *relay.Signature) error {
	return s.StoreSignatures(ctx, who, map[relay.ID]*relay.Signature{id: judged})
}

// StoreSignatures is StoreSignature for several events. It skips events that the actor may not see.
func (s *Store) StoreSignatures(ctx context.Context, who relay.Actor, judged map[relay.ID]*relay.Signature) error {
	return s.db.UpdateIf(ctx, people.Allow(who, relay.ScopeEventsRead), "store verdicts", func(c *db.Tx) error {
		ids := make([]relay.ID, 0, len(judged))
		for id := range judged {
			ids = append(ids, id)
		}
		if err := LockEvents(c, ids); err != nil {
			return err
		}
		may, args := people.AliasAccess(who)
		for _, id := range ids {
			var alias []int64
			if err := c.All(&alias, `SELECT al.id FROM events e JOIN aliases al ON al.id = e.alias_id WHERE e.id = ? AND `+may, append([]any{id}, args...)...); err != nil {
				return err
			}
			if len(alias) == 0 {
				continue
			}
			c.Do(`UPDATE events SET signature = ? WHERE id = ?`, SignatureText(judged[id]), id)
			c.Publish(relay.Change{Kind: relay.ChangeEvent, Alias: alias[0], Event: id})
		}
		return nil
	})
}

// filterSignature adds the condition on the verdict. Events without a verdict count as unchecked if
// their sender signs.
func (l *listing) filterSignature(f relay.Filter) {
	if f.Signature == "" {
		return
	}
	is, args := `SUBSTR(e.signature, 1, ?) = ?`, []any{len(f.Signature) + 1, f.Signature + " "}
	if f.Signature == record.Unchecked {
		senders, names := db.ColumnIn(`e.provider_name`, record.SigningSenders())
		is, args = `(`+is+` OR e.signature = '' AND `+senders+`)`, append(args, names...)
	}
	l.and(is, args...)
}
