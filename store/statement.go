package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	"relay"
)

// statement is an SQL text of the journal with a list of rows at %s. Postgres gets all rows
// in one statement and needs their types. SQLite gets one row at a time through a prepared
// statement.
//
// {id} and {event_id} stand for a condition on that column: it is between the lowest and the
// highest id of the rows, which are the first values of the rows. Postgres needs that to
// plan for the days of these events only: to plan for all days takes longer than the rest.
type statement struct {
	casts []string // type of each column of a row, for Postgres; nil = known from the table
	width int      // columns of a row where casts are nil
	text  string
	tail  int // number of parameters after the rows
}

func insertInto(table, columns string) statement {
	return statement{
		width: strings.Count(columns, ",") + 1,
		text:  `INSERT INTO ` + table + ` (` + columns + `) VALUES %s ON CONFLICT DO NOTHING`,
	}
}

var (
	insertEvents   = insertInto("events", eventColumns)
	insertAttempts = insertInto("attempts", attemptColumns)
	insertPayloads = insertInto("payloads", payloadColumns)
	insertChunks   = insertInto("body_chunks", "event_id, n, i, data")
)

// sweptLive matches the attempt of a live request that another node ended because it took the
// claimant for dead, unless there is a later attempt. The caller of such a request may have
// got its answer, so the result of the claimant replaces the state. An attempt from the queue
// stays interrupted, because it was queued again.
const sweptLive = `state = 4 AND error_code = '` + relay.StateInterrupted + `' AND from_queue = 0
	AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = attempts.event_id AND e.attempts > attempts.n)`

// finishAttempts ends attempts that the claimant delivers. An upgraded attempt is delivered
// from the 101 on, and is finished once more when the connection ends.
var finishAttempts = statement{
	casts: []string{
		"uuid", "int", "int", "bigint", "bigint", "text", "text", "text", "int", "bytea", "int", "int", "text",
	},
	text: `WITH v (vid, vn, vstate, vstarted, vended, vcode, vmessage, vconnection, videntical, vtiming, vresponse, vstatus, vrstate)
			AS (VALUES %s)
		UPDATE attempts SET state = v.vstate, started_at = CASE WHEN v.vstarted > 0 THEN v.vstarted ELSE started_at END,
			ended_at = v.vended, error_code = v.vcode, error_message = v.vmessage, connection = v.vconnection,
			identical = v.videntical, timing = v.vtiming, has_response = v.vresponse, status = v.vstatus, response_state = v.vrstate
		FROM v WHERE event_id = v.vid AND n = v.vn AND (state = 1 OR state = 2 AND response_state = 'upgraded' AND v.vstate = 2
				OR ` + sweptLive + `)
			AND claim_node IN (?, ?) {event_id}
		RETURNING event_id, n, alias_id, kind, from_queue, received_at, bytes`,
	tail: 2,
}

// dequeueAttempts removes attempts that ended from the queue.
var dequeueAttempts = statement{
	casts: []string{"uuid", "int"},
	text:  `DELETE FROM queue WHERE (event_id, n) IN (VALUES %s)`,
}

// columns is the number of columns of a row.
func (st *statement) columns() int { return max(st.width, len(st.casts)) }

// one is the statement for one row, with ? as placeholders.
func (st *statement) one(d *dialect) string {
	var row strings.Builder
	for i := range st.columns() {
		row.WriteString(",?")
		if d.isPostgres && st.casts != nil {
			row.WriteString("::" + st.casts[i])
		}
	}
	text := strings.NewReplacer("{id}", "", "{event_id}", "").Replace(st.text)
	return fmt.Sprintf(text, "("+row.String()[1:]+")")
}

// many is the statement for n rows on Postgres.
func (st *statement) many(n int) string {
	var rows strings.Builder
	parameter := 0
	for r := range n {
		for c := range st.columns() {
			parameter++
			rows.WriteString([]string{",(", ","}[min(c, 1)])
			rows.WriteString("$" + strconv.Itoa(parameter))
			if r == 0 && st.casts != nil {
				rows.WriteString("::" + st.casts[c])
			}
		}
		rows.WriteByte(')')
	}
	text := fmt.Sprintf(st.text, rows.String()[1:])
	for range st.tail {
		parameter++
		text = strings.Replace(text, "?", "$"+strconv.Itoa(parameter), 1)
	}
	if !strings.Contains(text, "{") {
		return text
	}
	between := fmt.Sprintf(" BETWEEN $%d AND $%d", parameter+1, parameter+2)
	return strings.NewReplacer("{id}", "AND id"+between, "{event_id}", "AND event_id"+between).Replace(text)
}

// args are the arguments of many.
func (st *statement) args(rows [][]any, tail ...any) []any {
	out := append(flat(rows), tail...)
	if !strings.Contains(st.text, "{") {
		return out
	}
	low, high := rows[0][0].(relay.ID), rows[0][0].(relay.ID)
	for _, row := range rows {
		id := row[0].(relay.ID)
		if bytes.Compare(id[:], low[:]) < 0 {
			low = id
		}
		if bytes.Compare(id[:], high[:]) > 0 {
			high = id
		}
	}
	return append(out, low, high)
}

// prepared holds the statements of the SQLite writer. Preparing needs the only writing
// connection, so it is done before a transaction begins.
type prepared map[*statement]*sql.Stmt

func (s *Store) prepare(ctx context.Context) (p prepared, err error) {
	if s.d.isPostgres {
		return nil, nil // named statements do not survive a pooler
	}
	p = prepared{}
	for _, st := range []*statement{
		&insertEvents, &insertAttempts, &insertPayloads, &insertChunks, &insertQueue, &finishAttempts, &dequeueAttempts, &endEvent,
		&oldestOnSQLite, &claimOnSQLite, &claimInQueue, &eventDelivering,
	} {
		if p[st], err = s.write.PrepareContext(ctx, st.one(&s.d)); err != nil {
			return nil, fmt.Errorf("prepare journal: %w", err)
		}
	}
	s.readClaimed, err = s.read.PreparexContext(ctx, claimedSQL)
	return p, err
}

// writer runs statements of the journal within one transaction.
type writer struct {
	*writeTx
	tx         *sqlx.Tx
	prepared   prepared
	target     *writeTarget
	bound      map[*statement]*sql.Stmt
	usageDelta map[int64]int64 // bytes that the transaction adds to each alias
}

// run executes a statement for rows.
func (w *writer) run(st *statement, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	if w.d.isPostgres {
		_, err := w.tx.ExecContext(w.ctx, st.many(len(rows)), st.args(rows)...)
		return err
	}
	stmt := w.bind(st)
	for _, row := range rows {
		if _, err := stmt.ExecContext(w.ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

// returning executes a statement for rows and returns the rows of its result. fields are the
// destinations of the columns.
func (w *writer) returning(st *statement, rows [][]any, fields func(*attemptRow) []any, tail ...any) (out []attemptRow, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if w.d.isPostgres {
		err = w.tx.SelectContext(w.ctx, &out, st.many(len(rows)), st.args(rows, tail...)...)
		return out, err
	}
	stmt := w.bind(st)
	for _, row := range rows {
		var r attemptRow
		err := stmt.QueryRowContext(w.ctx, append(row[:len(row):len(row)], tail...)...).Scan(fields(&r)...)
		if err == nil {
			out = append(out, r)
		} else if err != sql.ErrNoRows {
			return nil, err
		}
	}
	return out, nil
}

// bind returns the prepared statement bound to this transaction.
func (w *writer) bind(st *statement) *sql.Stmt {
	if w.bound[st] == nil {
		w.bound[st] = w.tx.StmtContext(w.ctx, w.prepared[st])
	}
	return w.bound[st]
}

func flat(rows [][]any) []any {
	out := make([]any, 0, len(rows)*len(rows[0]))
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}
