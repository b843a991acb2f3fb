package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"relay/store/file"
)

const serveLock = "serve.lock"

// LockDataDir takes the lock of the data dir before Serve does, so that a second server with the same data
// dir fails before it migrates or listens. UnlockDataDir releases the lock. Call LockDataDir from the
// goroutine that will call Serve, before other goroutines use the store.
func (s *Store) LockDataDir() error {
	if s.lock != nil || s.opt.DataDir == "" {
		return nil
	}
	if err := os.MkdirAll(s.opt.DataDir, 0o700); err != nil {
		return fmt.Errorf("make data dir: %w", err)
	}
	f, err := s.db.OpenLock(serveLock)
	if err != nil {
		return err
	}
	err = file.Lock(f, false)
	for began := time.Now(); err != nil && time.Since(began) < probeTime; err = file.Lock(f, false) {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("another relayd already serves %s; stop it, or give this one its own --data-dir", s.opt.DataDir), f.Close())
	}
	s.lock = f
	s.noteFile()
	return nil
}

// probeTime is the time for which LockDataDir tries again. It is longer than the time for which Served holds
// the lock in a command.
const probeTime = 200 * time.Millisecond

// noteFile writes into the lock file which SQLite file this process serves; see CheckServedFile. It ignores
// errors.
func (s *Store) noteFile() {
	if s.db.Dialect.SeveralNodes() {
		return
	}
	if err := s.lock.Truncate(0); err == nil {
		_, _ = s.lock.WriteAt([]byte(fileNote+s.db.FileInode()+"\n"), 0)
	}
}

// fileNote precedes the inode in the lock file.
const fileNote = "sqlite inode "

// CheckServedFile returns an error if the server of the data dir has another SQLite file open than the
// present one. This happens when the file is replaced while the server runs. The server then does not see the
// changes that a command makes in the new file.
func (s *Store) CheckServedFile() error {
	if s.lock != nil || s.db.Dialect.SeveralNodes() {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.opt.DataDir, serveLock))
	noted, found := strings.CutPrefix(strings.TrimSpace(string(text)), fileNote)
	if now := s.db.FileInode(); err != nil || !found || now == "" || noted == now {
		return nil
	}
	if serving, err := s.Served(); err != nil || !serving {
		return nil
	}
	return fmt.Errorf("the server of %[1]s has another file open than the relay.db that is there now, which was put there while the server ran; "+
		"stop that server, then start it again: until then callers use the old file", s.opt.DataDir)
}

// UnlockDataDir releases the lock of the data dir, if this process has it.
func (s *Store) UnlockDataDir() error {
	if s.lock == nil {
		return nil
	}
	return file.Unlock(s.lock)
}

// bootID is a file with an id that is new at each start of the machine (Linux).
const bootID = "/proc/sys/kernel/random/boot_id"

// lockOwner returns the entry of a process in the lock file: the id of its node, the start of the machine, and
// the identity of the file. A copy of the data dir on another disk or machine, or a data dir that two machines
// share, differs in one of these. lockOwner returns "" if the system does not provide the start of the machine
// or the identity of the file.
func lockOwner(node string, f *os.File) string {
	machine, err := os.ReadFile(bootID)
	file := file.ID(f)
	if err != nil || file == "" {
		return ""
	}
	return node + "\n" + strings.TrimSpace(string(machine)) + "\n" + file + "\n"
}

// Predecessor returns the node id of the previous process of this data dir, if that process has certainly
// ended: it ran on this machine since the machine's last start, and had the lock that this process has now.
// Otherwise Predecessor returns "".
func (s *Store) Predecessor() string {
	if s.lock == nil || !s.db.Dialect.SeveralNodes() {
		return ""
	}
	b := make([]byte, 1024)
	n, err := s.lock.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	node, _, _ := strings.Cut(string(b[:n]), "\n")
	if node == "" || string(b[:n]) != lockOwner(node, s.lock) {
		return ""
	}
	return node
}

// noteOwner writes the node of this process to the lock file. It ignores errors.
func (s *Store) noteOwner(node string) {
	if s.lock == nil || !s.db.Dialect.SeveralNodes() {
		return
	}
	if err := s.lock.Truncate(0); err == nil {
		_, _ = s.lock.WriteAt([]byte(lockOwner(node, s.lock)), 0)
	}
}

// Served reports whether a server has the lock of the data dir. It holds the lock for a moment if no server
// has it.
func (s *Store) Served() (bool, error) {
	if s.lock != nil {
		return true, nil
	}
	f, err := os.OpenFile(filepath.Join(s.opt.DataDir, serveLock), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	taken := file.Lock(f, false) != nil
	return taken, file.Unlock(f)
}
