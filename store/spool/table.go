package spool

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/store/file"
)

const (
	fileName      = "spool.db"
	RefusedFile   = "spool-refused.jsonl"      // file of the steps that the database refuses, for the operator
	damagedSuffix = ".damaged"                 // suffix of files that SQLite cannot read
	oldFiles      = "spool-[0-9]*-[0-9]*[0-9]" // pattern of the spool files of versions before spool.db
	fileVersion   = 1                          // user_version of the file

	// A step of usual size leaves little of a page of 16 KiB unused, and a part of a body needs few pages.
	pageSize = 16 << 10
	walMax   = 8 << 20 // size of the write-ahead log, unless one batch is larger

	minPages = 16 // pages for the schema and a few steps, even if the limit is lower
)

const schema = `CREATE TABLE steps (
		seq    INTEGER PRIMARY KEY,
		node   TEXT NOT NULL,    -- id of the node that wrote the step
		former TEXT NOT NULL,    -- its ids before it rejoined, separated by spaces
		part   BLOB,             -- partKey of a part of a body
		sum    INTEGER NOT NULL, -- CRC-32C of data
		data   BLOB NOT NULL
	) STRICT;
	CREATE INDEX parts ON steps (part) WHERE part IS NOT NULL;
	PRAGMA user_version = 1;`

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// partKey names one part of a stored body.
type partKey struct {
	id   relay.ID
	n, i int
}

// bytes returns the key as stored in the column part, in which the parts of a body are next to each other.
func (k partKey) bytes() []byte {
	b := binary.BigEndian.AppendUint32(append(make([]byte, 0, 24), k.id[:]...), uint32(k.n))
	return binary.BigEndian.AppendUint32(b, uint32(k.i))
}

// Row is a step in the file, encoded.
type Row struct {
	Seq    int64  `db:"seq"`
	Node   string `db:"node"`
	Former string `db:"former"`
	Part   []byte `db:"part"`
	Sum    uint32 `db:"sum"`
	Data   []byte `db:"data"`
}

// size returns the number of bytes that a row counts for: roughly its size in the file.
func (r *Row) size() int64 { n := int64(len(r.Data)); return n + n/64 + 64 }

const rowSize = `LENGTH(data) + LENGTH(data) / 64 + 64` // the same in SQL

// newRows encodes steps.
func newRows(steps []*Step, node, former string) (rows []Row, size int64) {
	for _, st := range steps {
		size += st.Size + stepOverhead
	}
	buf := make([]byte, 0, size)
	rows, size = make([]Row, len(steps)), 0
	for i, st := range steps {
		at := len(buf)
		buf = appendStep(buf, st)
		rows[i] = Row{Node: node, Former: former, Data: buf[at:len(buf):len(buf)]}
		rows[i].Sum = crc32.Checksum(rows[i].Data, castagnoli)
		if st.Kind == Chunk {
			rows[i].Part = partKey{st.ID, st.N, st.I}.bytes()
		}
		size += rows[i].size()
	}
	return rows, size
}

// Step decodes a row.
func (r *Row) Step() (*Step, error) {
	if crc32.Checksum(r.Data, castagnoli) != r.Sum {
		return nil, errStepDamaged
	}
	return parseStep(r.Data)
}

// table is the file of the spool. It is made when the first step arrives, and removed when all steps
// are in Postgres. Commits wait for the disk. Readers do not wait for the writer.
type table struct {
	path   string
	write  *sqlx.DB // has a single connection
	read   *sqlx.DB
	insert *sql.Stmt
	pages  *sql.Stmt
}

// openTable opens the file in dir, and makes it if it does not exist. limit bounds the file with its
// write-ahead log, except that the log may grow by one batch. Steps with numbers up to the parameter stored
// are in the database, and do not count even if the file still has them. vfs is the name of the SQLite file
// system, "" for the usual one.
func openTable(dir string, limit, stored int64, vfs string) (t *table, c counts, err error) {
	ctx := context.Background()
	t = &table{path: filepath.Join(dir, fileName)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open %s: %w", t.path, err), t.close())
		}
	}()
	f, err := file.Open(t.path, os.O_RDWR) // made here, because SQLite gives its log the mode and owner of the file
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return t, c, err
	}
	wal := walLimit(limit)
	common := []string{file.BusyTimeout, "cache_size(-4096)"}
	t.write, err = file.OpenSQLite(ctx, t.path, 1, append(common, fmt.Sprintf("page_size(%d)", pageSize), "synchronous(FULL)",
		fmt.Sprintf("max_page_count(%d)", max((limit-wal)/pageSize, minPages)), fmt.Sprintf("journal_size_limit(%d)", wal),
		fmt.Sprintf("wal_autocheckpoint(%d)", max(wal/pageSize/2, 1))), vfs)
	if err != nil {
		return t, c, err
	}
	var version int
	if _, err = t.write.Exec(`PRAGMA journal_mode(WAL)`); err == nil { // not in the list above: the driver sorts that list, and page_size has to come first
		err = t.write.Get(&version, `PRAGMA user_version`)
	}
	if err == nil && version == 0 {
		err = t.transact(func(tx *sqlx.Tx) error { _, err := tx.Exec(schema); return err })
	}
	if err == nil && version > fileVersion {
		err = errors.New("a newer relayd made it; run that until the spool is empty")
	}
	if err != nil {
		return t, c, err
	}
	t.read, err = file.OpenSQLite(ctx, t.path, 2, append(common, "query_only(1)"), vfs)
	if err == nil {
		t.insert, err = t.write.Prepare(`INSERT INTO steps (seq, node, former, part, sum, data) VALUES (?, ?, ?, ?, ?, ?)`)
	}
	if err == nil {
		t.pages, err = t.write.Prepare(`SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count`)
	}
	if err == nil {
		c, err = t.counts(stored)
	}
	return t, c, err
}

// walLimit returns the share of the write-ahead log in the spool's limit.
func walLimit(limit int64) int64 { return min(limit/8, walMax) }

func (t *table) transact(fn func(*sqlx.Tx) error) error {
	tx, err := t.write.Beginx()
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// next reads rows with numbers above seq; see Spool.Next.
func (t *table) next(seq int64, limit int, bytes int64) (rows []Row, err error) {
	list, err := t.read.Queryx(`SELECT seq, node, former, sum, data FROM steps WHERE seq > ? ORDER BY seq LIMIT ?`, seq, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, list.Err(), list.Close()) }()
	for list.Next() {
		var r Row
		if err := list.StructScan(&r); err != nil {
			return nil, err
		}
		if bytes -= r.size(); len(rows) > 0 && (bytes < 0 || r.Node != rows[0].Node || r.Former != rows[0].Former) {
			break
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// counts has figures about the steps in a file that are not in the database.
type counts struct {
	Last  int64 `db:"last"` // number of the last step
	Steps int64 `db:"steps"`
	Bytes int64 `db:"bytes"`
}

func (t *table) counts(after int64) (c counts, err error) {
	err = t.read.Get(&c, `SELECT COALESCE(MAX(seq), 0) AS last, COUNT(*) AS steps, COALESCE(SUM(`+rowSize+`), 0) AS bytes FROM steps WHERE seq > ?`, after)
	return c, err
}

func (t *table) close() (err error) {
	for _, db := range []*sqlx.DB{t.read, t.write} { // write comes last, because SQLite moves the log into the file when the last connection is closed
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

// remove closes and removes the file. Its steps are in Postgres, and spool_marks says so until the
// removal is durable; if a power loss brings the file back, its steps are therefore ignored.
func (t *table) remove() error {
	err := t.close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if gone := os.Remove(t.path + suffix); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return errors.Join(err, file.SyncDir(filepath.Dir(t.path)))
}

// Refused is a line of the file RefusedFile, as JSON with bytes in base64.
type Refused struct {
	At      time.Time
	Reason  string
	Kind    string         `json:",omitempty"`
	Event   string         `json:",omitempty"`
	N, I    int            `json:",omitempty"`
	Request *relay.Event   `json:",omitempty"`
	End     *relay.Attempt `json:",omitempty"`
	Message *relay.Message `json:",omitempty"`
	Data    []byte         `json:",omitempty"` // part of a body, or a step that cannot be read
}

// Refuse returns the line of a step that the database refuses for a reason.
func Refuse(st *Step, reason string) Refused {
	kind := []string{"accept", "chunk", "amend", "finish", "requeue"}[st.Kind]
	r := Refused{Reason: reason, Kind: kind, Event: st.ID.String(), N: st.N, I: st.I, Request: st.Event, End: st.Attempt, Data: st.Data}
	if st.Kind == Amend {
		r.Request, r.Message = nil, &st.Event.Request
	}
	return r
}

// Quarantine durably appends steps that the database will never accept to the file RefusedFile in dir,
// for the operator.
func Quarantine(dir string, steps []Refused) error {
	var lines []byte
	for _, st := range steps {
		st.At = time.Now().UTC()
		line, err := json.Marshal(st)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	f, err := file.Open(filepath.Join(dir, RefusedFile), os.O_APPEND|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), file.SyncDir(dir))
}

// Content describes the spool files of a data dir.
type Content struct {
	Bytes int64    // bytes of the steps that were not in Postgres when the file was last written
	Aside []string // names of files with steps that could not be read or stored
}

// ReadLeft reads the content of the spool in a data dir, even while a server uses it.
func ReadLeft(dir string) (c Content, err error) {
	for _, pattern := range []string{"spool-*" + damagedSuffix, RefusedFile} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		c.Aside = append(c.Aside, names...)
	}
	path := filepath.Join(dir, fileName)
	if _, err := os.Stat(path); err != nil {
		return c, nil
	}
	db, err := file.OpenSQLite(context.Background(), path, 1, []string{file.BusyBeside, "query_only(1)"}, "")
	if err != nil {
		return c, err
	}
	counts, err := (&table{read: db}).counts(0)
	c.Bytes = counts.Bytes
	return c, errors.Join(err, db.Close())
}

// Left reports whether an earlier process left a spool in dir.
func Left(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fileName))
	old, _ := filepath.Glob(filepath.Join(dir, oldFiles))
	return err == nil || len(old) > 0
}
