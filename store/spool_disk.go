package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// spoolDisk is the file system under the spool. Tests replace it by one that forgets what
// was not synced, or on which a sync fails.
type spoolDisk interface {
	open(path string, flag int) (spoolFile, error)
	remove(path string) error
	rename(from, to string) error
	// syncDir makes the names of the files in a folder durable.
	syncDir(dir string) error
}

// spoolFile is a file on a spoolDisk.
type spoolFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (os.FileInfo, error)
	Sync() error
	Truncate(size int64) error
	// lock takes the lock that ends with the process. It fails at once when another
	// process has it.
	lock() error
}

// realDisk is the spoolDisk of the operating system.
type realDisk struct{}

func (realDisk) open(path string, flag int) (spoolFile, error) {
	f, err := os.OpenFile(path, flag, spoolFileMode)
	if err != nil {
		return nil, err
	}
	return realFile{f}, nil
}

func (realDisk) remove(path string) error     { return os.Remove(path) }
func (realDisk) rename(from, to string) error { return os.Rename(from, to) }
func (realDisk) syncDir(dir string) error     { return syncDir(dir) }

type realFile struct{ *os.File }

// writeFile durably makes or replaces a file. After a loss of power the file has its old
// content or the new one.
func writeFile(disk spoolDisk, path string, content []byte) error {
	part := path + ".part"
	f, err := disk.open(part, os.O_CREATE|os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil { // before rename: Windows does not rename an open file
		err = disk.rename(part, path)
	}
	if err != nil {
		return errors.Join(err, disk.remove(part))
	}
	return disk.syncDir(filepath.Dir(path))
}

func (f realFile) lock() error { return lockFile(f.File, false) }
