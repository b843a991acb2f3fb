package events

import (
	"cmp"
	"strings"
	"time"

	"relay"
	"relay/store/db"
)

// InsertFunction is the function of Postgres that inserts new events with their attempts and payloads. A migration
// creates it. If a column that the insert writes is added to eventColumns, the function needs another name, because
// nodes of earlier versions call this one. TestInsertFunction of package journal writes the migration of the new
// function with -update.
const InsertFunction = "insert_events_1"

// NewRow is the row of a new event: the event in its stored form, and values that only the store needs.
type NewRow struct {
	relay.Event
	State   int
	EndedN  int // number of the attempt whose end is stored together with the event; 0 = none
	Latency any // latency of attempt EndedN, in the form that LatencyMicros returns
}

// column is a column of the table of events. value returns the value that the insert writes. field returns the
// destination of the column when a list reads a row; nil = lists do not read the column.
type column struct {
	name, postgresType string
	value              func(*NewRow) any
	field              func(*relay.Event) any
}

// eventColumns are the columns that the insert of an event writes, in the order of the parameters of
// InsertFunction.
var eventColumns = []column{
	{"id", "uuid", func(r *NewRow) any { return r.ID }, func(e *relay.Event) any { return &e.ID }},
	{"alias_id", "bigint", func(r *NewRow) any { return r.AliasID }, func(e *relay.Event) any { return &e.AliasID }},
	{"received_at", "bigint", func(r *NewRow) any { return db.Micros(r.ReceivedAt) }, func(e *relay.Event) any { return (*db.Time)(&e.ReceivedAt) }},
	{"asked_at", "bigint", func(r *NewRow) any { return db.Micros(r.LastReceivedAt) }, func(e *relay.Event) any { return (*db.Time)(&e.LastReceivedAt) }},
	{"remote", "text", func(r *NewRow) any { return r.Remote.String() }, func(e *relay.Event) any { return (*db.AddrPort)(&e.Remote) }},
	{"tls", "bigint", func(r *NewRow) any { return db.BoolToInt(r.TLS) }, func(e *relay.Event) any { return &e.TLS }},
	{"method", "text", func(r *NewRow) any { return r.Method }, func(e *relay.Event) any { return &e.Method }},
	{"target", "bytea", func(r *NewRow) any { return r.Target }, func(e *relay.Event) any { return &e.Target }},
	{"http_minor", "bigint", func(r *NewRow) any { return r.HTTPMinor }, func(e *relay.Event) any { return &e.HTTPMinor }},
	{"host", "text", func(r *NewRow) any { return r.Host }, func(e *relay.Event) any { return &e.Host }},
	{"provider_name", "text", func(r *NewRow) any { return r.Provider.Name }, func(e *relay.Event) any { return &e.Provider.Name }},
	{"provider_type", "text", func(r *NewRow) any { return r.Provider.EventType }, func(e *relay.Event) any { return &e.Provider.EventType }},
	{"provider_delivery", "text", func(r *NewRow) any { return r.Provider.DeliveryID }, func(e *relay.Event) any { return &e.Provider.DeliveryID }},
	{"signed_at", "bigint", func(r *NewRow) any { return db.Micros(r.Provider.SignedAt) }, func(e *relay.Event) any { return (*db.Time)(&e.Provider.SignedAt) }},
	{"tolerance_us", "bigint", func(r *NewRow) any { return r.Provider.Tolerance.Microseconds() }, func(e *relay.Event) any { return db.Period(&e.Provider.Tolerance) }},
	{"state", "bigint", func(r *NewRow) any { return r.State }, func(e *relay.Event) any { return db.Code(&e.State, States) }},
	{"error_code", "text", func(r *NewRow) any { code, _ := FaultText(r.Error); return code }, func(e *relay.Event) any { return faultCode(&e.Error) }},
	{"error_message", "text", func(r *NewRow) any { _, message := FaultText(r.Error); return message }, func(e *relay.Event) any { return faultMessage(&e.Error) }},
	{"status", "bigint", func(r *NewRow) any { return r.Status }, func(e *relay.Event) any { return &e.Status }},
	{"latency_us", "bigint", func(r *NewRow) any { return r.Latency }, latencyColumn},
	{"attempts", "bigint", func(r *NewRow) any { return r.AttemptCount }, func(e *relay.Event) any { return &e.AttemptCount }},
	{"ended_n", "bigint", func(r *NewRow) any { return r.EndedN }, nil},
	{"blocker", "text", func(r *NewRow) any { return r.Blocker }, func(e *relay.Event) any { return &e.Blocker }},
	{"req_size", "bigint", func(r *NewRow) any { return r.Request.Body.Size }, func(e *relay.Event) any { return &e.Request.Body.Size }},
}

// rareColumn is a column with a text that few new events have. A separate statement sets it after the insert,
// which therefore has no parameter for it. value returns the text for a new event and its attempt, which is empty
// if there is none; "" = the event has none. field is as in column.
type rareColumn struct {
	name  string
	value func(*relay.Event, *relay.Attempt) string
	field func(*relay.Event) any
}

var rareColumns = []rareColumn{
	{"sent", func(e *relay.Event, _ *relay.Attempt) string { return SentText(e.Sent) }, func(e *relay.Event) any { return sentColumn(&e.Sent) }},
	{"signature", func(e *relay.Event, _ *relay.Attempt) string { return SignatureText(e.Signature) }, func(e *relay.Event) any { return signatureColumn(&e.Signature) }},
	{"handshake", func(_ *relay.Event, a *relay.Attempt) string { return a.Handshake }, func(e *relay.Event) any { return &e.Handshake }},
	{"missed_handshake", func(e *relay.Event, _ *relay.Attempt) string { return e.MissedHandshake }, func(e *relay.Event) any { return &e.MissedHandshake }},
	{"host_refused_by", Refusal, func(e *relay.Event) any { return &e.HostRefusedBy }},
}

// EventColumns are the names of eventColumns, and EventTypes their types in Postgres.
var EventColumns, EventTypes = inserted()

func inserted() (names, types string) {
	for _, c := range eventColumns {
		names += ", " + c.name
		types += " " + c.postgresType
	}
	return strings.TrimPrefix(names, ", "), strings.TrimPrefix(types, " ")
}

// EventValues returns the values of EventColumns.
func EventValues(r *NewRow) []any {
	values := make([]any, 0, len(eventColumns))
	for _, c := range eventColumns {
		values = append(values, c.value(r))
	}
	return values
}

// readColumns are the columns of eventColumns and rareColumns that lists read; those of rareColumns have no value.
var readColumns = func() (list []column) {
	for _, c := range eventColumns {
		if c.field != nil {
			list = append(list, c)
		}
	}
	for _, c := range rareColumns {
		list = append(list, column{name: c.name, field: c.field})
	}
	return list
}()

// listColumns are the columns of eventFields.
var listColumns = func() (list string) {
	for _, c := range readColumns {
		list += "e." + c.name + ", "
	}
	return list + "al.name AS alias"
}()

// eventFields returns the destinations of the columns of a list row.
func eventFields(e *relay.Event) []any {
	fields := make([]any, 0, len(readColumns)+1)
	for _, c := range readColumns {
		fields = append(fields, c.field(e))
	}
	return append(fields, &e.Alias)
}

// textColumns are the readColumns whose text is a field of the event as it is.
var textColumns = func() (list []column) {
	var e relay.Event
	for _, c := range readColumns {
		if _, ok := c.field(&e).(*string); ok {
			list = append(list, c)
		}
	}
	return list
}()

// MakeStorable changes the texts of an event to those that a read of its row returns.
func MakeStorable(e *relay.Event) {
	for _, c := range textColumns {
		text := c.field(e).(*string)
		*text = db.StorableText(*text)
	}
}

// Amended returns a new event with those texts of rareColumns that an Amend of the event has.
func Amended(e, amend *relay.Event) *relay.Event {
	out := *e
	for _, c := range rareColumns {
		if text := c.value(amend, &noAttempt); text != "" {
			switch to := c.field(&out).(type) {
			case *string:
				*to = text
			case db.Column:
				to(text)
			}
		}
	}
	return &out
}

// noAttempt is the attempt of a new event that has none.
var noAttempt relay.Attempt

// RareColumns are the statements that set the columns of which few new events have a value. Values returns the
// parameters for a new event and its attempt, or nil if they have no value. The attempt may be nil.
var RareColumns = func() (list []RareColumn) {
	for _, c := range rareColumns {
		set := db.NewStatement(`uuid text`, `WITH v (vid, vtext) AS (%s) UPDATE events SET `+c.name+` = v.vtext FROM v WHERE id = v.vid {id}`)
		list = append(list, RareColumn{set, func(e *relay.Event, a *relay.Attempt) []any {
			text := c.value(e, cmp.Or(a, &noAttempt))
			if text == "" {
				return nil
			}
			return []any{e.ID, db.StorableText(text)}
		}})
	}
	return append(list, RareColumn{SetCallerGone, func(e *relay.Event, a *relay.Attempt) []any {
		if a == nil || !a.CallerGone {
			return nil
		}
		return []any{e.ID, a.N}
	}})
}()

// RareColumn is an element of RareColumns.
type RareColumn struct {
	Set    *db.Statement
	Values func(*relay.Event, *relay.Attempt) []any
}

// latencyColumn returns the destination of a latency; NULL means that the event has none.
func latencyColumn(e *relay.Event) any {
	return db.Column(func(stored any) {
		us, ok := stored.(int64)
		e.Latency, e.HasLatency = time.Duration(us)*time.Microsecond, ok
	})
}
