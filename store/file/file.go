// Package file opens SQLite files, and writes and locks other files of a data dir.
package file

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// BusyTimeout and BusyBeside are pragmas with the time for which SQLite waits for the lock of another process.
const (
	BusyTimeout = "busy_timeout(2000)"  // for a server, whose callers must get an answer within 5 s
	BusyBeside  = "busy_timeout(10000)" // for an operator command, which may wait longer for the server
)

// lockedTime is the time for which OpenSQLite and OpenReadOnly wait for a file that another process keeps
// locked.
const lockedTime = 9 * time.Second

// OpenSQLite opens a handle on a file with up to conns connections. vfs is the name of an SQLite file
// system, "" for that of the operating system.
func OpenSQLite(ctx context.Context, path string, conns int, pragmas []string, vfs string) (*sqlx.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": pragmas}
	if vfs != "" {
		q.Set("vfs", vfs)
	}
	return open(ctx, path, conns, q)
}

// OpenReadOnly opens a handle that does not change the file. It reads the content of the write-ahead log
// in place, without moving it into the file.
func OpenReadOnly(ctx context.Context, path string) (*sqlx.DB, error) {
	return open(ctx, path, 2, url.Values{"mode": {"ro"}, "_pragma": {BusyTimeout, "query_only(1)"}})
}

func open(ctx context.Context, path string, conns int, q url.Values) (*sqlx.DB, error) {
	lib, err := sqlx.Open("sqlite", "")
	if err == nil {
		err = lib.Close() // the handle is closed at once, because only its driver is needed
	}
	if err != nil {
		return nil, err
	}
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
	db := sqlx.NewDb(sql.OpenDB(&connector{driver: lib.Driver(), name: name, path: path}), "sqlite")
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	// Another process may keep the file locked, for example during a migration. The loop may wait for it,
	// because no caller waits for this store yet.
	for began := time.Now(); ; {
		err := db.PingContext(ctx)
		if err == nil {
			return db, nil
		}
		if SQLiteCode(err) != sqlite3.SQLITE_BUSY || ctx.Err() != nil || time.Since(began) > lockedTime {
			return nil, errors.Join(err, db.Close())
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// connector opens the connections of one handle, all to the same file. SQLite opens a file by its path:
// after the file or its folder was moved away, a new connection would use another file, so Connect refuses it.
type connector struct {
	driver     driver.Driver
	name, path string
	first      atomic.Pointer[string] // inode at the first connection; "" = unknown
}

// Connect implements driver.Connector.
func (c *connector) Connect(context.Context) (driver.Conn, error) {
	first, now := c.first.Load(), Inode(c.path)
	if first != nil && *first != now {
		return nil, fmt.Errorf("%s was moved or replaced while this program had it open; end the program, then start it again", c.path)
	}
	conn, err := c.driver.Open(c.name)
	if err == nil && first == nil {
		now = Inode(c.path) // the first connection may have created the file
		c.first.CompareAndSwap(nil, &now)
	}
	return conn, err
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.driver }

// SQLiteCode returns the code of an error of SQLite; 0 for other errors.
func SQLiteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// Damaged reports whether an error means that the content of the file is damaged.
func Damaged(err error) bool {
	code := SQLiteCode(err)
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// Open opens or makes a file that only its owner can access. A file that root makes gets the owner of its
// folder, because a service that runs as this owner has to open the file. SQLite does the same with its log.
func Open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return os.OpenFile(path, flag, 0o600)
	}
	if err == nil {
		giveToOwner(f, filepath.Dir(path))
	}
	return f, err
}

// Write durably makes or replaces a file that only its owner can access. After a power loss the file
// has either its old or its new content.
func Write(path string, content []byte) error {
	part := path + ".part"
	f, err := Open(part, os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil { // Windows does not rename an open file
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return SyncDir(filepath.Dir(path))
}

// Create durably makes a file that only its owner can access. If the file exists, it is not changed, and the
// error is fs.ErrExist. That is also the result if another process makes the file at the same time.
func Create(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part") // CreateTemp uses mode 0600
	if err != nil {
		return err
	}
	giveToOwner(f, filepath.Dir(path))
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), path) // unlike a rename, a link never replaces a file
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the directory entries of a folder durable, on systems that support it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write folder to disk: %w", err)
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || runtime.GOOS == "windows" {
		err = nil
	}
	return errors.Join(err, d.Close())
}
