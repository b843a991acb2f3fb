package convert

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"relay/store/db"
)

// Table is a table to copy, with its progress.
type Table struct {
	Name        string
	Rows, Total int64
	SHA256      string // sum of the hashes of all rows, in any order; "" until they are compared

	columns []column
	key     []int // indexes of the columns of the primary key
}

type column struct {
	name string
	kind string // type in SQLite: INTEGER, TEXT or BLOB
	uuid bool
}

// postgresTypes are the Postgres types that accept the values of an SQLite type.
var postgresTypes = map[string][]string{"INTEGER": {"int2", "int4", "int8"}, "TEXT": {"text"}, "BLOB": {"bytea", "uuid"}}

// plan lists the tables to copy. Each table comes after the tables that it refers to. A table or a column
// that exists on one side only is an error.
func plan(source, target db.Query) ([]*Table, error) {
	var names []string
	if err := source.All(&names, `SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name`); err != nil {
		return nil, err
	}
	there, err := postgresTables(target)
	if err != nil {
		return nil, err
	}
	copied := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(notCopied, name) })
	}
	names = copied(names)
	if other := copied(there); !slices.Equal(names, other) {
		return nil, fmt.Errorf("the tables of the two stores differ: %q and %q", names, other)
	}
	var tables []*Table
	var add func(name string) error
	add = func(name string) error {
		if slices.ContainsFunc(tables, func(t *Table) bool { return t.Name == name }) {
			return nil
		}
		var before []string
		if err := source.All(&before, `SELECT "table" FROM pragma_foreign_key_list(?) WHERE "table" <> ?`, name, name); err != nil {
			return err
		}
		for _, other := range before {
			if err := add(other); err != nil {
				return err
			}
		}
		t, err := tableOf(source, target, name)
		tables = append(tables, t)
		return err
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// postgresTables lists the tables of the schema in use, without partitions.
func postgresTables(target db.Query) (names []string, err error) {
	err = target.All(&names, `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace
		AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname COLLATE "C"`)
	return names, err
}

func tableOf(source, target db.Query, name string) (*Table, error) {
	t := &Table{Name: name}
	var columns []struct {
		Name, Type string
		PK         int
	}
	if err := source.All(&columns, `SELECT name, type, pk FROM pragma_table_info(?) ORDER BY name`, name); err != nil {
		return nil, err
	}
	var there []struct {
		Name string `db:"column_name"`
		Type string `db:"udt_name"`
	}
	if err := target.All(&there, `SELECT column_name, udt_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name = ? ORDER BY column_name COLLATE "C"`, name); err != nil {
		return nil, err
	}
	if len(columns) != len(there) {
		return nil, fmt.Errorf("table %s has %d columns in SQLite and %d in Postgres", name, len(columns), len(there))
	}
	order := map[int]int{} // from the position in the primary key, which begins at 1, to the index of the column
	for i, c := range columns {
		if c.Name != there[i].Name || !slices.Contains(postgresTypes[c.Type], there[i].Type) {
			return nil, fmt.Errorf("column %s of table %s is %s in SQLite, and Postgres has %s %s", c.Name, name, c.Type, there[i].Name, there[i].Type)
		}
		t.columns = append(t.columns, column{c.Name, c.Type, there[i].Type == "uuid"})
		if c.PK > 0 {
			order[c.PK] = i
		}
	}
	for i := range len(order) {
		t.key = append(t.key, order[i+1])
	}
	if len(t.key) == 0 {
		return nil, fmt.Errorf("table %s has no primary key", name)
	}
	return t, nil
}

// quote returns a name as a quoted SQL identifier, which both engines accept. Names come from the schema only.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// list returns the list of columns for SQL. asBytes is the function that turns a UUID into bytes, "" = none.
func (t *Table) list(asBytes string) string {
	var list []string
	for _, c := range t.columns {
		name := quote(c.name)
		if c.uuid && asBytes != "" {
			name = asBytes + `(` + name + `)`
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

func (t *Table) keyList() string {
	var list []string
	for _, i := range t.key {
		list = append(list, quote(t.columns[i].name))
	}
	return strings.Join(list, ", ")
}

// scan reads a row, and returns its approximate size in bytes.
func (t *Table) scan(scan func(...any) error) (row []any, size int, err error) {
	row = make([]any, len(t.columns))
	to := make([]any, len(row))
	for i := range row {
		to[i] = &row[i]
	}
	if err := scan(to...); err != nil {
		return nil, 0, err
	}
	for i, v := range row {
		size += 8
		switch v := v.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
			if t.columns[i].kind == "TEXT" { // one driver returns text as bytes
				row[i] = string(v)
			}
		}
	}
	return row, size, nil
}

// values returns a row in the form that the driver of Postgres needs.
func (t *Table) values(row []any) []any {
	out := slices.Clone(row)
	for i, c := range t.columns {
		if b, ok := row[i].([]byte); ok && c.uuid && len(b) == 16 {
			out[i] = hex.EncodeToString(b)
		}
	}
	return out
}

// compare counts and hashes the rows of both sides, and returns an error if they differ.
func (c *copier) compare(t *Table) error {
	from, err := t.digest(c.source, "")
	if err != nil {
		return fmt.Errorf("read table %s of SQLite: %w", t.Name, err)
	}
	to, err := t.digest(c.target, "uuid_send")
	if err != nil {
		return fmt.Errorf("read table %s of Postgres: %w", t.Name, err)
	}
	if from != to {
		return fmt.Errorf("table %s differs: SQLite has %d rows with hash %s, Postgres %d with %s; one of them was changed since the copy began: drop the database, create it again, and copy once more",
			t.Name, from.rows, from.text(), to.rows, to.text())
	}
	t.Rows, t.SHA256 = from.rows, from.text()
	return nil
}

// digest is the number of rows and the sum of the SHA-256 of the rows. The sum does not depend on the
// order of the rows, because the two engines sort text differently.
type digest struct {
	rows int64
	sum  [4]uint64
}

func (d *digest) text() string {
	var b []byte
	for _, part := range d.sum {
		b = binary.BigEndian.AppendUint64(b, part)
	}
	return hex.EncodeToString(b)
}

func (d *digest) add(hash [sha256.Size]byte) {
	d.rows++
	carry := uint64(0)
	for i := len(d.sum) - 1; i >= 0; i-- {
		d.sum[i], carry = bits.Add64(d.sum[i], binary.BigEndian.Uint64(hash[8*i:]), carry)
	}
}

func (t *Table) digest(q db.Query, asBytes string) (d digest, err error) {
	rows, err := q.Handle.QueryContext(q.Ctx, `SELECT `+t.list(asBytes)+` FROM `+quote(t.Name))
	if err != nil {
		return d, err
	}
	defer func() { _ = rows.Close() }()
	var text []byte
	for rows.Next() {
		row, _, err := t.scan(rows.Scan)
		if err != nil {
			return d, err
		}
		text = text[:0]
		for _, v := range row {
			switch v := v.(type) {
			case nil:
				text = append(text, 'n')
			case int64:
				text = binary.BigEndian.AppendUint64(append(text, 'i'), uint64(v))
			case string:
				text = append(binary.BigEndian.AppendUint64(append(text, 't'), uint64(len(v))), v...)
			case []byte:
				text = append(binary.BigEndian.AppendUint64(append(text, 'b'), uint64(len(v))), v...)
			default:
				return d, fmt.Errorf("a column holds a %T", v)
			}
		}
		d.add(sha256.Sum256(text))
	}
	return d, rows.Err()
}
