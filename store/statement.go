package store

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	"relay"
)

// statement is an SQL text of the journal with a list of rows at %s. Postgres gets all rows
// in one statement, as one array for each column, so that its text does not depend on their
// number. SQLite gets one row at a time through a prepared statement.
//
// {id} and {event_id} stand for a condition on that column: it is between the lowest and the
// highest id of the rows, which are the first values of the rows. Postgres needs that to
// plan for the days of these events only: to plan for all days takes longer than the rest.
//
// {claimant} is the condition that this node has claimed the attempt: its parameter are the ids
// of the node, separated by spaces. On SQLite a node has only one.
type statement struct {
	types            []string // of the columns of a row
	sqlite, postgres string
	bounded          bool // the text holds {id} or {event_id}
}

// newStatement makes a statement. types are the types of the columns of a row, as
// arrayTypes has them. The text may have parameters (?) behind the rows.
func newStatement(types, text string) *statement {
	st := &statement{types: strings.Fields(types), bounded: strings.Contains(text, "id}")}
	row := strings.Repeat(",?", len(st.types))[1:]
	st.sqlite = strings.NewReplacer("%s", "VALUES ("+row+")", "{id}", "", "{event_id}", "", "{claimant}", "claim_node = ?").Replace(text)
	next := len(st.types)
	var columns []string
	for i, t := range st.types {
		columns = append(columns, fmt.Sprintf("$%d::%s[]", i+1, t))
	}
	st.postgres = strings.NewReplacer("%s", "SELECT * FROM unnest("+strings.Join(columns, ", ")+")",
		"{claimant}", "claim_node = ANY (string_to_array(?, ' '))").Replace(text)
	for strings.Contains(st.postgres, "?") {
		next++
		st.postgres = strings.Replace(st.postgres, "?", "$"+strconv.Itoa(next), 1)
	}
	between := fmt.Sprintf("id BETWEEN $%d AND $%d", next+1, next+2)
	st.postgres = strings.NewReplacer("{id}", "AND "+between, "{event_id}", "AND event_"+between).Replace(st.postgres)
	return st
}

func insertInto(table, columns, types string) *statement {
	return newStatement(types, `INSERT INTO `+table+` (`+columns+`) %s ON CONFLICT DO NOTHING`)
}

const (
	eventTypes = `uuid bigint bigint bigint text bigint text bytea bigint text text text text bigint bigint
		bigint text text bigint bigint bigint bigint text bigint`
	attemptTypes = `uuid bigint bigint bigint bigint bigint bigint bigint text text text
		bigint bigint text bigint bytea bigint bigint text text bigint bigint`
	payloadTypes = `uuid bigint bytea bytea bigint bigint bytea bigint bigint bigint bytea text bytea bytea`
)

var (
	insertEvents   = insertInto("events", eventColumns, eventTypes)
	insertAttempts = insertInto("attempts", attemptColumns, attemptTypes)
	insertPayloads = insertInto("payloads", payloadColumns, payloadTypes)
	insertChunks   = insertInto("body_chunks", "event_id, n, i, data", "uuid bigint bigint bytea")
)

// insertEventsOnPostgres inserts events with their attempts and payloads (migrations/postgres/00011_insert_events.sql).
// It returns the ids of the events that it inserted; nothing of the others is inserted.
var insertEventsOnPostgres = func() string {
	parameters := make([]string, len(insertEvents.types)+len(insertAttempts.types)+len(insertPayloads.types))
	for i := range parameters {
		parameters[i] = "$" + strconv.Itoa(i+1)
	}
	return `SELECT insert_events_1(` + strings.Join(parameters, ", ") + `)`
}()

// sweptLive matches the attempt of a live request that another node ended because it took the
// claimant for dead, unless there is a later attempt. The caller of such a request may have
// got its answer, so the result of the claimant replaces the state. An attempt from the queue
// stays interrupted, because it was queued again.
const sweptLive = `state = 4 AND error_code = '` + relay.StateInterrupted + `' AND from_queue = 0
	AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = attempts.event_id AND e.attempts > attempts.n)`

// finishAttempts ends attempts that the claimant delivers. An upgraded attempt is delivered
// from the 101 on, and is finished once more when the connection ends. An end that was stored so
// late that its caller was told meanwhile that it is not is replaced by one that says so.
var finishAttempts = newStatement(
	`uuid bigint bigint bigint bigint text text text bigint bytea bigint bigint text`,
	`WITH v (vid, vn, vstate, vstarted, vended, vcode, vmessage, vconnection, videntical, vtiming, vresponse, vstatus, vrstate)
			AS (%s)
		UPDATE attempts SET state = v.vstate, released = CASE WHEN from_queue = 1 THEN released ELSE 0 END, started_at = CASE WHEN v.vstarted > 0 THEN v.vstarted ELSE started_at END,
			ended_at = v.vended, error_code = v.vcode, error_message = v.vmessage, connection = v.vconnection,
			identical = v.videntical, timing = v.vtiming, has_response = v.vresponse, status = v.vstatus, response_state = v.vrstate
		FROM v WHERE event_id = v.vid AND n = v.vn AND (state = 1 OR state = 2 AND v.vstate = 2 AND (response_state = 'upgraded' OR v.vcode = '`+relay.CodeResponseNotStored+`')
				OR `+sweptLive+`)
			AND {claimant} {event_id}
		RETURNING event_id, n, alias_id, kind, from_queue, received_at, bytes`)

// setCallerGone notes that the callers of attempts did not get the whole answer. That is seldom
// so, and often seen only after the end of the attempt was stored.
var setCallerGone = newStatement(`uuid bigint`,
	`WITH v (vid, vn) AS (%s) UPDATE attempts SET caller_gone = 1 FROM v WHERE event_id = v.vid AND n = v.vn {event_id}`)

// dequeueAttempts removes attempts that ended from the queue.
var dequeueAttempts = newStatement(`uuid bigint`, `DELETE FROM queue WHERE (event_id, n) IN (%s)`)

// args are the arguments of the text for Postgres.
func (st *statement) args(rows [][]any, tail ...any) []any {
	out := append(st.arrays(rows), tail...)
	if !st.bounded {
		return out
	}
	byID := func(a, b []any) int {
		x, y := a[0].(relay.ID), b[0].(relay.ID)
		return bytes.Compare(x[:], y[:])
	}
	return append(out, slices.MinFunc(rows, byID)[0], slices.MaxFunc(rows, byID)[0])
}

// arrays are the columns of the rows as arrays of Postgres.
func (st *statement) arrays(rows [][]any) []any {
	out := make([]any, len(st.types), len(st.types)+4)
	for i, t := range st.types {
		out[i] = binaryArray(arrayTypes[t], rows, i)
	}
	return out
}

// arrayTypes are the object ids of the types of elements of arrays (pg_type.dat).
var arrayTypes = map[string]uint32{"bytea": 17, "bigint": 20, "text": 25, "uuid": 2950}

// binaryArray encodes one column of rows as array_recv of Postgres reads it. The driver sends
// []byte in the binary format, and encodes arrays of its own as text.
func binaryArray(element uint32, rows [][]any, column int) []byte {
	order := binary.BigEndian
	size := 20 + 12*len(rows)
	for _, row := range rows {
		switch v := row[column].(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	b := make([]byte, 0, size+4*len(rows))
	b = order.AppendUint32(b, 1) // dimensions
	b = order.AppendUint32(b, 1) // elements may be NULL
	b = order.AppendUint32(b, element)
	b = order.AppendUint32(b, uint32(len(rows)))
	b = order.AppendUint32(b, 1) // index of the first element
	for _, row := range rows {
		start := len(b)
		b = append(b, 0, 0, 0, 0)
		null := row[column] == nil
		switch v := row[column].(type) {
		case relay.ID:
			b = append(b, v[:]...)
		case int:
			b = order.AppendUint64(b, uint64(v))
		case int64:
			b = order.AppendUint64(b, uint64(v))
		case string:
			b = append(b, v...)
		case *int64:
			if null = v == nil; !null {
				b = order.AppendUint64(b, uint64(*v))
			}
		case []byte:
			b, null = append(b, v...), v == nil
		}
		length := uint32(len(b) - start - 4)
		if null {
			length = math.MaxUint32 // -1
		}
		order.PutUint32(b[start:], length)
	}
	return b
}

// runOne executes a statement for one row.
func (s session) runOne(st *statement, row []any) error {
	text, args := st.sqlite, row
	if s.d.isPostgres {
		text, args = st.postgres, st.args([][]any{row})
	}
	_, err := s.q.ExecContext(s.ctx, text, args...)
	return err
}

// writer runs statements of the journal within one transaction.
type writer struct {
	*writeTx
	tx         *sqlx.Tx
	prepared   map[*statement]*sql.Stmt // those that return rows; see Store
	conn       *sqlx.Conn               // SQLite: the connection of tx
	inserts    *driverStatements
	target     *writeTarget
	usageDelta map[int64]int64 // bytes that the transaction adds to each alias
}

// run executes a statement for rows.
func (w *writer) run(st *statement, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	if w.d.isPostgres {
		_, err := w.q.ExecContext(w.ctx, st.postgres, st.args(rows)...)
		return err
	}
	return w.conn.Raw(func(conn any) error { return w.inserts.run(w.ctx, conn, st, rows) })
}

// driverStatements executes statements on the connection of the SQLite writer, without the conversions, locks and
// results of database/sql: they took a fifth of the memory that a request allocates (docs/performance.md).
type driverStatements struct {
	conn       any // whose statements they are
	statements map[*statement]driverStatement
	args       []driver.NamedValue // reused
}

type driverStatement interface {
	driver.Stmt
	driver.StmtExecContext
}

// close ends the statements: SQLite closes a file only after them. The pool does not know of them.
func (d *driverStatements) close(db *sqlx.DB) error {
	if d.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	return errors.Join(conn.Raw(func(conn any) error {
		if conn != d.conn {
			return nil // theirs is closed
		}
		var errs []error
		for _, st := range d.statements {
			errs = append(errs, st.Close())
		}
		return errors.Join(errs...)
	}), conn.Close())
}

// run executes a statement for rows.
func (d *driverStatements) run(ctx context.Context, conn any, st *statement, rows [][]any) error {
	if d.conn != conn {
		*d = driverStatements{conn: conn, statements: map[*statement]driverStatement{}}
	}
	exec := d.statements[st]
	if exec == nil {
		made, err := conn.(driver.ConnPrepareContext).PrepareContext(ctx, st.sqlite)
		if err != nil {
			return err
		}
		exec = made.(driverStatement)
		d.statements[st] = exec
	}
	for _, row := range rows {
		d.args = d.args[:0]
		for i, value := range row {
			switch v := value.(type) {
			case int:
				value = int64(v)
			case *int64:
				if value = nil; v != nil {
					value = *v
				}
			case relay.ID:
				value = v[:]
			}
			d.args = append(d.args, driver.NamedValue{Ordinal: i + 1, Value: value})
		}
		if _, err := exec.ExecContext(ctx, d.args); err != nil {
			return err
		}
	}
	clear(d.args) // it refers to bodies
	return nil
}

// returning executes a statement for rows and returns the rows of its result. fields are the
// destinations of the columns.
func returning[T any](w *writer, st *statement, rows [][]any, fields func(*T) []any, tail ...any) (out []T, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if w.d.isPostgres {
		return rowsOf(w.session, fields, st.postgres, st.args(rows, tail...)...)
	}
	stmt := w.tx.StmtContext(w.ctx, w.prepared[st])
	for _, row := range rows {
		var r T
		err := stmt.QueryRowContext(w.ctx, append(row[:len(row):len(row)], tail...)...).Scan(fields(&r)...)
		if err == nil {
			out = append(out, r)
		} else if err != sql.ErrNoRows {
			return nil, err
		}
	}
	return out, nil
}
