package client

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Login is what is kept of a login at one relay.
type Login struct {
	BaseURL string `json:"baseUrl"`           // dashboard and API
	Server  string `json:"server"`            // SSH address HOST:PORT as it is dialed
	User    string `json:"user"`              // account, for people
	Token   string `json:"token"`             // API token
	TokenID string `json:"tokenId,omitempty"` // "" when the token was made elsewhere
	Key     string `json:"key,omitempty"`     // key file; "" = ssh-agent and ~/.ssh
}

// Logins is the file of logins: JSON, for its owner's eyes only, written whole or
// not at all. Programs that change it at the same time do so one after another.
type Logins struct {
	Dir string // of the program's configuration; made when needed, 0700
}

// loginsFile is what the file holds; the newest login is the last.
type loginsFile struct {
	Version int     `json:"version"`
	Logins  []Login `json:"logins"`
}

// Path is the file.
func (l Logins) Path() string { return filepath.Join(l.Dir, "logins.json") }

// OwnKey is the key pair that login makes for who has none.
func (l Logins) OwnKey() string { return filepath.Join(l.Dir, "id_ed25519") }

// Read gives the logins, the newest last. A file that others can read or write is
// refused: whoever read it has the tokens.
func (l Logins) Read() ([]Login, error) {
	text, info, err := readFile(l.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, Errorf(ExitFailure, "others can read %s, which holds tokens (mode %04o)", l.Path(), info.Mode().Perm()).
			WithHint("chmod 600 '%s', then relay logout and relay login if somebody may have read it", l.Path())
	}
	if err != nil {
		return nil, &Error{Exit: ExitFailure, Text: "cannot read the logins", Cause: err}
	}
	var file loginsFile
	if err := json.Unmarshal(text, &file); err != nil || file.Version != 1 {
		return nil, Errorf(ExitFailure, "%s is no file of this program's logins", l.Path()).
			WithHint("remove it and run relay login again")
	}
	return file.Logins, nil
}

// maxLogins bounds the file of logins.
const maxLogins = 1 << 20

// readFile reads a small file and tells about the very file that was read.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxLogins))
	return text, info, err
}

// Save keeps a login as the newest, in place of an older one at the same server.
func (l Logins) Save(login Login) error {
	return withLock(l.Dir, func() error {
		list, err := l.Read()
		if err != nil {
			return err
		}
		return l.write(append(without(list, login.Server), login))
	})
}

// Forget removes the login at a server. The file goes with the last of them.
func (l Logins) Forget(server string) error {
	return withLock(l.Dir, func() error {
		list, err := l.Read()
		if err != nil {
			return err
		}
		if list = without(list, server); len(list) > 0 {
			return l.write(list)
		}
		if err := os.Remove(l.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func without(list []Login, server string) []Login {
	return slices.DeleteFunc(slices.Clone(list), func(o Login) bool { return SameServer(o.Server, server) })
}

func (l Logins) write(list []Login) error {
	text, err := json.MarshalIndent(loginsFile{Version: 1, Logins: list}, "", "  ")
	if err != nil {
		return err
	}
	return writePrivate(l.Path(), append(text, '\n'))
}

// writePrivate puts a file in place that only its owner can read, whole or not at
// all; its folder is made when needed.
func writePrivate(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
