package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

func TestLoginsAreKeptForOnePerson(t *testing.T) {
	logins := Logins{Dir: filepath.Join(t.TempDir(), "config", "relay")}
	if list, err := logins.Read(); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	a := Login{BaseURL: "https://a.test", Server: "a.test:2222", User: "alice", Token: "rly_a", TokenID: "tok_1"}
	b := Login{BaseURL: "https://b.test", Server: "b.test:22", User: "bob", Token: "rly_b", Key: "/k"}
	for _, l := range []Login{a, b, a} {
		if err := logins.Save(l); err != nil {
			t.Fatal(err)
		}
	}
	list, err := logins.Read()
	if err != nil || len(list) != 2 || list[0] != b || list[1] != a {
		t.Errorf("%+v, %v: want b, then a as the newest", list, err)
	}
	for path, want := range map[string]os.FileMode{logins.Dir: 0o700, logins.Path(): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(logins.Dir, ".logins*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := errors.Join(logins.Forget("a.test:2222"), logins.Forget("a.test:2222")); err != nil {
		t.Error(err)
	}
	if list, _ = logins.Read(); len(list) != 1 || list[0] != b {
		t.Errorf("%+v", list)
	}
	if err := logins.Forget("b.test:22"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(logins.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// TestLoginsOfManyAtOnce: if several programs log in at the same time, no login is lost. The token of a lost
// login would stay valid at the relay.
func TestLoginsOfManyAtOnce(t *testing.T) {
	logins := Logins{Dir: filepath.Join(t.TempDir(), "relay")}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := logins.Save(Login{Server: fmt.Sprintf("%d.test:22", i), Token: "rly_x"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := logins.Read(); err != nil || len(list) != 20 {
		t.Errorf("%d logins, %v", len(list), err)
	}
}

// TestOneKeyIsMadeByManyAtOnce: several programs that make a key at the same time all get the same key.
func TestOneKeyIsMadeByManyAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay", "id_ed25519")
	made := make(chan string, 10)
	var all sync.WaitGroup
	for range cap(made) {
		all.Go(func() {
			key, err := MakeKey(file, "x")
			if err != nil {
				t.Error(err)
				return
			}
			made <- ssh.FingerprintSHA256(key)
		})
	}
	all.Wait()
	close(made)
	first := <-made
	for other := range made {
		if other != first {
			t.Errorf("%s and %s", first, other)
		}
	}
}

func TestLoginsThatOthersMayReadAreRefused(t *testing.T) {
	logins := Logins{Dir: t.TempDir()}
	if err := logins.Save(Login{Server: "a:1", Token: "rly_secret"}); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		if err := os.Chmod(logins.Path(), mode); err != nil {
			t.Fatal(err)
		}
		_, err := logins.Read()
		var e *cli.Error
		if !errors.As(err, &e) || e.Exit != cli.ExitFailure || !strings.HasPrefix(e.Hint, "chmod 600 ") || strings.Contains(e.Error()+e.Hint, "rly_") {
			t.Errorf("%04o: %v", mode, err)
		}
		if err := logins.Save(Login{Server: "b:1"}); err == nil {
			t.Errorf("%04o: written over", mode)
		}
	}
}

func TestLoginsThatAreNoLogins(t *testing.T) {
	logins := Logins{Dir: t.TempDir()}
	for _, text := range []string{"", "{", "[]", `{"version":2,"logins":[]}`} {
		if err := os.WriteFile(logins.Path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := logins.Read(); exitOfError(err) != cli.ExitFailure {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPrivateFilesAreWholeOrOld(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := writePrivate(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o700) }()
	if err := writePrivate(path, []byte("new")); err == nil && os.Geteuid() != 0 {
		t.Error("written into a folder that is closed")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" && os.Geteuid() != 0 {
		t.Errorf("%q, %v", text, err)
	}
}
