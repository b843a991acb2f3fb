package store

import (
	"encoding/json"

	"relay"
	"relay/store/db"
)

// changeAct is the kind of change that tells the running servers about an entry that a command added to the
// audit log.
const changeAct relay.ChangeKind = "audit"

// tellActs announces the audit entries of a command's transaction to the running servers, which then
// write the entries to their logs. It does nothing in a server, which logs its own entries (logActs).
func (s *Store) tellActs(c *db.Tx) {
	if s.Serving() {
		return
	}
	for _, e := range c.Audited {
		if text, err := json.Marshal(e); err == nil {
			c.Announced = append(c.Announced, relay.Change{Kind: changeAct, Credential: string(text)})
		}
	}
}

// logActs logs the audit entries of a transaction, if this process is a server. A command prints its
// result instead.
func (s *Store) logActs(c *db.Tx) {
	if s.Serving() {
		for _, e := range c.Audited {
			s.logAct(e)
		}
	}
}

// heardAct decodes the audit entry in the parameter text and logs it, if kind is changeAct. It returns whether
// kind is changeAct.
func (s *Store) heardAct(kind relay.ChangeKind, text string) bool {
	if kind != changeAct {
		return false
	}
	var e relay.AuditEntry
	if err := json.Unmarshal([]byte(text), &e); err == nil {
		s.logAct(e)
	}
	return true
}

// logAct logs an entry of the audit log, without its empty values. Audit entries contain no secrets.
func (s *Store) logAct(e relay.AuditEntry) {
	var values []any
	for _, v := range [][2]string{{"action", e.Action}, {"actor", e.Actor}, {"via", e.Via}, {"target", e.Target}, {"detail", e.Detail}} {
		if v[1] != "" {
			values = append(values, v[0], v[1])
		}
	}
	s.log.Info("audit", values...)
}
