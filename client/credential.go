package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"relay/cli"
	"relay/record"
)

// Login holds the addresses and credentials of one relay, as relay login has stored them.
type Login struct {
	BaseURL string `json:"baseUrl"`           // dashboard and API
	Server  string `json:"server"`            // SSH address HOST:PORT as it is dialed
	User    string `json:"user"`              // name of the account, to show to users
	Token   string `json:"token"`             // API token
	TokenID string `json:"tokenId,omitempty"` // "" when the token was made elsewhere
	Key     string `json:"key,omitempty"`     // key file; "" = ssh-agent and ~/.ssh
}

// Logins is the file of logins: JSON, mode 0600, replaced atomically. With a lock file, programs change it one
// after another.
type Logins struct {
	Dir string // configuration directory of the program; created when needed, mode 0700
}

// loginsFile is the content of the file, with the newest login last.
type loginsFile struct {
	Version int     `json:"version"`
	Logins  []Login `json:"logins"`
}

// Path returns the path of the file of logins.
func (l Logins) Path() string { return filepath.Join(l.Dir, "logins.json") }

// OwnKey returns the path of the key pair that relay login makes for a user without a key.
func (l Logins) OwnKey() string { return filepath.Join(l.Dir, "id_ed25519") }

// Read returns the logins, newest last. A file that other users can access is refused, because they may have
// read the tokens.
func (l Logins) Read() ([]Login, error) {
	info, err := os.Stat(l.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, cli.Errorf(cli.ExitFailure, "others can read %s, which holds tokens (mode %04o)", l.Path(), info.Mode().Perm()).
			WithHint("chmod 600 '%s', then relay logout and relay login if another user may have read it", l.Path())
	}
	text, err := os.ReadFile(l.Path())
	if err != nil {
		return nil, &cli.Error{Exit: cli.ExitFailure, Text: "cannot read the logins", Cause: err}
	}
	var file loginsFile
	if err := json.Unmarshal(text, &file); err != nil || file.Version != 1 {
		return nil, cli.Errorf(cli.ExitFailure, "%s is not a login file of this program", l.Path()).
			WithHint("remove it and run relay login again")
	}
	return file.Logins, nil
}

// Save stores a login as the newest one and replaces an older one at the same server.
func (l Logins) Save(login Login) error { return l.change(login.Server, login) }

// Forget removes the login at a server. If no other login is left, Forget removes the file.
func (l Logins) Forget(server string) error { return l.change(server) }

// change removes the login at a server and adds the given one, if any.
func (l Logins) change(server string, by ...Login) error {
	return withLock(l.Dir, func() error {
		list, err := l.Read()
		if err != nil {
			return err
		}
		list = append(slices.DeleteFunc(list, func(o Login) bool { return SameServer(o.Server, server) }), by...)
		if len(list) == 0 {
			if err := os.Remove(l.Path()); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}
		text, err := json.MarshalIndent(loginsFile{Version: 1, Logins: list}, "", "  ")
		if err != nil {
			return err
		}
		return writePrivate(l.Path(), append(text, '\n'))
	})
}

// writePrivate replaces a file atomically; only its owner can read it. The directory is created if necessary.
func writePrivate(path string, text []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-") // CreateTemp uses mode 0600
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

const maxTokenInput = 4096 // longest line that ReadToken reads, in bytes

// ReadToken reads a token from the first line of a text. The line must contain nothing else.
func ReadToken(r io.Reader) (string, error) {
	input := bufio.NewReaderSize(r, maxTokenInput)
	line, err := input.ReadSlice('\n')                           // reads no further than one line, because a user who types it at a terminal sends no end of file
	if err == nil && bytes.HasPrefix(line, []byte("\xff\xfe")) { // UTF-16: the line end has a second byte
		line = append(slices.Clone(line), 0)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return "", err
	}
	token := strings.TrimSpace(string(record.DecodeText(line)))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", cli.Errorf(cli.ExitUsage, "there is no token on standard input").
			WithHint("relay login URL --with-token < FILE")
	}
	return token, nil
}
