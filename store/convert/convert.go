// Package convert copies the tables of a SQLite store into an empty Postgres. It reads the names of the
// tables from the two schemas. If a column cannot be copied, it returns an error before it copies a row.
package convert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/file"
)

// Options name the source and the target of the copy.
type Options struct {
	// Source is the SQLite file, which is only read.
	Source string
	// Target is a Postgres with the schema of this program.
	Target *db.DB
	// MakeDay makes the partitions of a day that has events.
	MakeDay func(ctx context.Context, day time.Time) error
	// Report gets each table after each batch, and again, with its hash, after the comparison.
	Report func(Table)
	// BatchBytes and BatchRows bound one transaction; 0 = the defaults.
	BatchBytes, BatchRows int
}

// Bounds of one transaction of the copy. Memory holds one batch.
const (
	batchBytes = 4 << 20
	batchRows  = 5000
)

// notCopied are tables about processes and migrations. The server fills them.
var notCopied = []string{"goose_db_version", "migration_lock", "nodes", "tunnels", "leases", "spool_marks", "storage_counters", progressTable}

// progressTable records the progress of each table. It exists until the copy has ended.
const progressTable = "store_copy"

const hasProgress = `SELECT to_regclass('` + progressTable + `') IS NOT NULL`

type copier struct {
	Options
	source, target db.Query
	tables         []*Table
}

// Run copies all tables that no earlier call has copied, and compares them. After an error or a kill at any
// point, another call continues where the last one stopped. A call after the end compares the tables again.
func Run(ctx context.Context, o Options) (tables []*Table, err error) {
	source, err := file.OpenReadOnly(ctx, o.Source)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Source, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	c := &copier{Options: o, source: db.Query{Ctx: ctx, Handle: source, Dialect: db.SQLite{}}, target: o.Target.Session(ctx, o.Target.Slow)}
	if c.BatchBytes == 0 {
		c.BatchBytes, c.BatchRows = batchBytes, batchRows
	}
	filled, err := c.begin()
	if err != nil {
		return nil, err
	}
	if filled != "" {
		return c.tables, c.again(filled)
	}
	for _, t := range c.tables {
		if err := c.copyTable(t); err != nil {
			return nil, fmt.Errorf("copy table %s: %w", t.Name, err)
		}
	}
	for _, t := range c.tables {
		if err := c.compare(t); err != nil {
			return nil, err
		}
		c.Report(*t)
	}
	return c.tables, c.end()
}

// again handles a call after the copy has ended, for example if the process was killed before it reported the
// result. If the tables of the two stores differ, it returns an error. The parameter filled is the name of a
// table that has rows, for this error.
func (c *copier) again(filled string) error {
	for _, t := range c.tables {
		if c.compare(t) != nil {
			return fmt.Errorf("the database has relay data already, in table %s; the copy needs an empty database: drop this one and create it again, or name another", filled)
		}
	}
	for _, t := range c.tables {
		c.Report(*t)
	}
	return nil
}

// Unfinished reports whether a copy into this database has started but not ended.
func Unfinished(ctx context.Context, s *db.DB) (unfinished bool, err error) {
	if !s.Dialect.SeveralNodes() {
		return false, nil
	}
	err = s.Session(ctx, s.Slow).Get(&unfinished, hasProgress)
	return unfinished, s.Fault("look for a copy that has not ended", err)
}

// begin checks that both sides have the same schema. It prepares the target, unless an earlier call has done
// that. filled is a table that has rows although no copy is in progress.
func (c *copier) begin() (filled string, err error) {
	var have, want int64
	if err := errors.Join(c.source.Get(&have, db.SchemaVersion), c.target.Get(&want, db.SchemaVersion)); err != nil {
		return "", fmt.Errorf("read schema version: %w", err)
	}
	if have != want {
		return "", fmt.Errorf("the schema of %s is version %d, and the copy needs %d; run `relayd migrate` first, which changes that file", c.Source, have, want)
	}
	if c.tables, err = plan(c.source, c.target); err != nil {
		return "", err
	}
	var begun bool
	if err := c.target.Get(&begun, hasProgress); err != nil || begun {
		return "", err
	}
	names, err := postgresTables(c.target)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		var hasRows bool
		if strings.HasPrefix(name, "goose_") || name == "migration_lock" {
			continue
		}
		if err := c.target.Get(&hasRows, `SELECT EXISTS (SELECT 1 FROM `+quote(name)+`)`); err != nil || hasRows {
			return name, err
		}
	}
	if err := c.makeDays(); err != nil {
		return "", err
	}
	_, err = c.target.Handle.ExecContext(c.target.Ctx, `CREATE TABLE `+progressTable+` (name TEXT PRIMARY KEY, last_key TEXT NOT NULL, copied BIGINT NOT NULL)`)
	return "", err
}

// makeDays makes the partitions of the days that have events.
func (c *copier) makeDays() error {
	for next := (relay.ID{}); ; {
		var ids []relay.ID
		if err := c.source.All(&ids, `SELECT id FROM events WHERE id >= ? ORDER BY id LIMIT 1`, next); err != nil || len(ids) == 0 {
			return err
		}
		day := ids[0].Time().UTC().Truncate(24 * time.Hour)
		if day.After(time.Now()) { // the server makes the partitions of the next days, and later days come from a wrong clock
			return nil
		}
		if err := c.MakeDay(c.source.Ctx, day); err != nil {
			return fmt.Errorf("make the partitions of %s: %w", day.Format(time.DateOnly), err)
		}
		next = events.LowestID(day.AddDate(0, 0, 1))
	}
}

// end sets the sequences of ids in Postgres to continue after the copied rows, and ends the copy.
func (c *copier) end() error {
	tx, err := c.Target.Slow.BeginTxx(c.target.Ctx, nil)
	if err != nil {
		return err
	}
	err = c.endIn(c.Target.Session(c.target.Ctx, tx))
	if err != nil {
		return errors.Join(err, db.Rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, _ = c.target.Handle.ExecContext(c.target.Ctx, `ANALYZE`) // an error is ignored, because Postgres does this later by itself
	return nil
}

func (c *copier) endIn(q db.Query) error {
	for _, t := range c.tables {
		if len(t.key) != 1 || t.columns[t.key[0]].kind != "INTEGER" {
			continue
		}
		var highest, issued int64
		column := t.columns[t.key[0]].name
		if err := c.source.Get(&highest, `SELECT COALESCE(MAX(`+quote(column)+`), 0) FROM `+quote(t.Name)); err != nil {
			return err
		}
		// Ids of removed rows must not be issued again.
		if err := c.source.Get(&issued, `SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = ?`, t.Name); err != nil {
			return err
		}
		if highest = max(highest, issued); highest == 0 {
			continue
		}
		if _, err := q.Handle.ExecContext(q.Ctx, `SELECT setval(pg_get_serial_sequence($1, $2), $3) WHERE pg_get_serial_sequence($1, $2) IS NOT NULL`,
			t.Name, column, highest); err != nil {
			return fmt.Errorf("continue the ids of %s: %w", t.Name, err)
		}
	}
	_, err := q.Handle.ExecContext(q.Ctx, `DROP TABLE `+progressTable)
	return err
}

// copyTable copies the rows of a table that are missing in the target, in the order of the key.
func (c *copier) copyTable(t *Table) error {
	if err := c.source.Get(&t.Total, `SELECT COUNT(*) FROM `+quote(t.Name)); err != nil {
		return err
	}
	var done []struct {
		LastKey string `db:"last_key"`
		Copied  int64
	}
	if err := c.target.All(&done, `SELECT last_key, copied FROM `+progressTable+` WHERE name = ?`, t.Name); err != nil {
		return err
	}
	query, args := `SELECT `+t.list("")+` FROM `+quote(t.Name), []any(nil)
	if len(done) > 0 {
		t.Rows = done[0].Copied
		key, err := decodeKey(done[0].LastKey)
		if err != nil {
			return err
		}
		query, args = query+` WHERE (`+t.keyList()+`) > (?`+strings.Repeat(`, ?`, len(key)-1)+`)`, key
	}
	rows, err := c.source.Handle.QueryContext(c.source.Ctx, query+` ORDER BY `+t.keyList(), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var batch [][]any
	size := 0
	for rows.Next() {
		row, n, err := t.scan(rows.Scan)
		if err != nil {
			return err
		}
		batch, size = append(batch, row), size+n
		if size >= c.BatchBytes || len(batch) >= c.BatchRows {
			if err := c.store(t, batch); err != nil {
				return err
			}
			batch, size = batch[:0], 0
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return c.store(t, batch)
}

// store adds rows to the target, and notes the last row in the same transaction.
func (c *copier) store(t *Table, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	tx, err := c.Target.Slow.BeginTxx(c.target.Ctx, nil)
	if err != nil {
		return err
	}
	if err := c.storeIn(tx, t, rows); err != nil {
		return errors.Join(err, db.Rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	t.Rows += int64(len(rows))
	c.Report(*t)
	return nil
}

func (c *copier) storeIn(tx *sqlx.Tx, t *Table, rows [][]any) error {
	ctx := c.target.Ctx
	in, err := tx.PrepareContext(ctx, `COPY `+quote(t.Name)+` (`+t.list("")+`) FROM STDIN`)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if _, err := in.ExecContext(ctx, t.values(row)...); err != nil {
			return errors.Join(err, in.Close())
		}
	}
	if _, err = in.ExecContext(ctx); err != nil {
		return errors.Join(err, in.Close())
	}
	if err := in.Close(); err != nil {
		return err
	}
	last, err := t.encodeKey(rows[len(rows)-1])
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO `+progressTable+` (name, last_key, copied) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET last_key = excluded.last_key, copied = excluded.copied`, t.Name, last, t.Rows+int64(len(rows)))
	return err
}

// keyPart is one value of a key, in the form in which it is stored between two calls of Run.
type keyPart struct {
	Number int64  `json:"n,omitempty"`
	Bytes  []byte `json:"b,omitempty"`
	Kind   string `json:"k"`
}

func (t *Table) encodeKey(row []any) (string, error) {
	var parts []keyPart
	for _, i := range t.key {
		switch v := row[i].(type) {
		case int64:
			parts = append(parts, keyPart{Number: v, Kind: "INTEGER"})
		case string:
			parts = append(parts, keyPart{Bytes: []byte(v), Kind: "TEXT"})
		case []byte:
			parts = append(parts, keyPart{Bytes: v, Kind: "BLOB"})
		default:
			return "", fmt.Errorf("column %s of the key holds a %T", t.columns[i].name, v)
		}
	}
	text, err := json.Marshal(parts)
	return string(text), err
}

func decodeKey(text string) (key []any, err error) {
	var parts []keyPart
	if err := json.Unmarshal([]byte(text), &parts); err != nil {
		return nil, fmt.Errorf("read how far the copy has come: %w", err)
	}
	for _, p := range parts {
		switch p.Kind {
		case "INTEGER":
			key = append(key, p.Number)
		case "TEXT":
			key = append(key, string(p.Bytes))
		default:
			key = append(key, p.Bytes)
		}
	}
	return key, nil
}
