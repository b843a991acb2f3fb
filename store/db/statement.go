package db

import (
	"bytes"
	"context"
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

// Statement is an SQL text with a list of rows at %s. Postgres gets all rows in one statement, as one array
// for each column, so that its text does not depend on their number. SQLite gets one row at a time through a
// prepared statement.
//
// {id} and {event_id} are placeholders for a condition: the column with that name is between the lowest and
// the highest id of the rows, where the id is the first value of a row. With this condition Postgres plans
// only for the days of these events: planning for all days takes longer than the execution.
//
// {claimant} is a placeholder for the condition that this node has claimed the attempt. Its parameter holds
// the ids of the node, separated by spaces. On SQLite a node has only one id.
type Statement struct {
	types            []string // types of the columns of a row
	SQLite, Postgres string
	bounded          bool // the text holds {id} or {event_id}
}

// NewStatement returns a statement. types are the types of the columns of a row, with the names in
// arrayTypes. The text may have parameters (?) after the rows.
func NewStatement(types, text string) *Statement {
	st := &Statement{types: strings.Fields(types), bounded: strings.Contains(text, "id}")}
	row := strings.Repeat(",?", len(st.types))[1:]
	st.SQLite = strings.NewReplacer("%s", "VALUES ("+row+")", "{id}", "", "{event_id}", "", "{claimant}", "claim_node = ?").Replace(text)
	next := len(st.types)
	var columns []string
	for i, t := range st.types {
		columns = append(columns, fmt.Sprintf("$%d::%s[]", i+1, t))
	}
	st.Postgres = strings.NewReplacer("%s", "SELECT * FROM unnest("+strings.Join(columns, ", ")+")",
		"{claimant}", "claim_node = ANY (string_to_array(?, ' '))").Replace(text)
	for strings.Contains(st.Postgres, "?") {
		next++
		st.Postgres = strings.Replace(st.Postgres, "?", "$"+strconv.Itoa(next), 1)
	}
	between := fmt.Sprintf("id BETWEEN $%d AND $%d", next+1, next+2)
	st.Postgres = strings.NewReplacer("{id}", "AND "+between, "{event_id}", "AND event_"+between).Replace(st.Postgres)
	return st
}

// InsertInto returns a statement that inserts rows, except those that exist already.
func InsertInto(table, columns, types string) *Statement {
	return NewStatement(types, `INSERT INTO `+table+` (`+columns+`) %s ON CONFLICT DO NOTHING`)
}

// Group is a list of inserts of rows that belong together, such as an event and its attempts. The first
// column of each row is the id of the event that the row belongs to, and each row of the first statement has a
// different id. Postgres inserts all rows in one statement, with a function of the schema.
type Group struct {
	Function string
	Inserts  []*Statement
}

// Insert inserts the rows of each statement of the group. If a row of the first statement exists already,
// because an earlier commit stored it but got no answer, Insert inserts nothing for its id and returns the id.
// On SQLite it returns no ids, because a failed commit has stored nothing there.
func (b *Batch) Insert(g *Group, rows ...[][]any) (there map[relay.ID]bool, err error) {
	if len(rows[0]) == 0 {
		return nil, nil
	}
	return b.Dialect.insert(b, g, rows)
}

// Args returns the arguments of the text for Postgres: those of the rows, then tail for the parameters after
// the rows, then the bounds of {id} and {event_id}.
func (st *Statement) Args(rows [][]any, tail ...any) []any {
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

// arrays returns the columns of the rows as arrays of Postgres.
func (st *Statement) arrays(rows [][]any) []any {
	out := make([]any, len(st.types), len(st.types)+4)
	for i, t := range st.types {
		out[i] = binaryArray(arrayTypes[t], rows, i)
	}
	return out
}

// arrayTypes are the object ids of the element types of arrays (pg_type.dat).
var arrayTypes = map[string]uint32{"bytea": 17, "bigint": 20, "text": 25, "uuid": 2950}

// binaryArray encodes one column of rows in the format of array_recv of Postgres. The driver sends
// []byte in the binary format, but encodes its own arrays as text.
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
	b = order.AppendUint32(b, 1) // number of dimensions
	b = order.AppendUint32(b, 1) // flag: elements may be NULL
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
			length = math.MaxUint32 // -1, which means NULL
		}
		order.PutUint32(b[start:], length)
	}
	return b
}

// RunOne executes a statement for one row.
func (s Query) RunOne(st *Statement, row []any) error {
	text, args := s.Dialect.one(st, row)
	_, err := s.Handle.ExecContext(s.Ctx, text, args...)
	return err
}

// driverStatements executes statements on the connection of the SQLite writer, without the conversions, locks
// and results of database/sql: these took a fifth of the memory that a request allocates
// (docs/adr/measurements.md).
type driverStatements struct {
	conn       any // the connection on which the statements are prepared
	statements map[*Statement]driverStatement
	args       []driver.NamedValue // reused for each row
}

type driverStatement interface {
	driver.Stmt
	driver.StmtExecContext
}

// close closes the statements. SQLite closes a file only after its statements, and the pool does not know of
// these statements.
func (d *driverStatements) close(db *sqlx.DB) error {
	if d.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), OpTimeout)
	defer cancel()
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	return errors.Join(conn.Raw(func(conn any) error {
		if conn != d.conn {
			return nil // the connection of the statements is closed already
		}
		var errs []error
		for _, st := range d.statements {
			errs = append(errs, st.Close())
		}
		return errors.Join(errs...)
	}), conn.Close())
}

// run executes a statement for rows.
func (d *driverStatements) run(ctx context.Context, conn any, st *Statement, rows [][]any) error {
	if d.conn != conn {
		*d = driverStatements{conn: conn, statements: map[*Statement]driverStatement{}}
	}
	exec := d.statements[st]
	if exec == nil {
		made, err := conn.(driver.ConnPrepareContext).PrepareContext(ctx, st.SQLite)
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
	clear(d.args) // clear releases the memory of bodies
	return nil
}
