//go:build unix

package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay"
	"relay/cli"
	"relay/relaytest"
)

// restoredInto puts a backup and the host key into a new data dir.
func restoredInto(dir, backup, key string) error {
	err := os.MkdirAll(dir, 0o700)
	for from, to := range map[string]string{backup: databaseFile, key: "ssh_host_ed25519_key"} {
		text, rerr := os.ReadFile(from)
		err = errors.Join(err, rerr, os.WriteFile(filepath.Join(dir, to), text, 0o600))
	}
	return err
}

// TestDoctorOfMovedFiles: while a server runs, its data dir or its SQLite file is moved away. In some cases a
// backup is restored to the old path. Doctor reports that the server does not use the files there, and
// commands refuse to change them.
func TestDoctorOfMovedFiles(t *testing.T) {
	t.Parallel()
	const moved, another = "moved away while it ran", "has another file open than the relay.db that is there now"
	away := func(dir string) error { return os.Rename(dir, dir+".old") }
	for _, c := range []struct {
		situation
		move func(dir, backup string) error
	}{
		{situation{name: "folder moved away", check: "store", verdict: relay.VerdictFail, says: "no relay data", fix: "data-dir"}, func(dir, _ string) error { return away(dir) }},
		{situation{name: "backup restored in place of the folder", check: "served store", verdict: relay.VerdictFail, says: moved, fix: "stop it and start it again"}, func(dir, backup string) error {
			return errors.Join(away(dir), restoredInto(dir, backup, filepath.Join(dir+".old", "ssh_host_ed25519_key")))
		}},
		{situation{name: "backup restored in place of the file", check: "store", verdict: relay.VerdictFail, says: another, fix: "as the reason says"}, func(dir, backup string) (err error) {
			for _, end := range []string{"", "-wal", "-shm"} {
				err = errors.Join(err, os.Rename(filepath.Join(dir, databaseFile+end), filepath.Join(dir, "old.db"+end)))
			}
			return errors.Join(err, os.Rename(backup, filepath.Join(dir, databaseFile)))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			h := newTestServer(t, map[string]string{"data-dir": dir})
			backup := filepath.Join(t.TempDir(), "backup.db")
			if out, code := h.operate("backup", backup); code != cli.ExitOK {
				t.Fatal(out)
			}
			if list := failures(examine(t, settingsOf(h, nil))); len(list) > 0 {
				t.Fatalf("before: %+v", list)
			}
			if err := c.move(dir, backup); err != nil {
				t.Fatal(err)
			}
			c.expect(t, examine(t, settingsOf(h, nil)))
			if c.says != another {
				return
			}
			for _, call := range [][]string{{"user", "add", "zed"}, {"user", "list"}, {"backup", backup}} {
				var out, errs relaytest.Buffer
				if code := run(t.Context(), append(call, "--data-dir", dir), env(), &out, &errs); code != cli.ExitFailure || !strings.Contains(errs.String(), another) {
					t.Errorf("%v: exit %d: %s%s", call, code, out.String(), errs.String())
				}
			}
			if err := h.app.stopOnce(); err != nil {
				t.Fatal(err)
			}
			if f := failures(examine(t, settingsOf(h, nil))); len(f) != 1 || f[0].Check != "server" {
				t.Errorf("after its end: %+v", f)
			}
		})
	}
	t.Run("folder moved, doctor asked for the new name", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		h := newTestServer(t, map[string]string{"data-dir": dir})
		if err := away(dir); err != nil {
			t.Fatal(err)
		}
		if list := failures(examine(t, settingsOf(h, map[string]string{"data-dir": dir + ".old"}))); len(list) > 0 {
			t.Errorf("it is the store of that server: %+v", list)
		}
	})
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		one, two := newTestServer(t, nil), newTestServer(t, nil)
		for _, h := range []*testServer{one, two} {
			if list := failures(examine(t, settingsOf(h, nil))); len(list) > 0 {
				t.Errorf("each with its own: %+v", list)
			}
		}
		flags := settingsOf(one, nil)
		maps.Copy(flags, map[string]string{"data-dir": two.flags["data-dir"]})
		situation{check: "base URL", verdict: relay.VerdictFail, says: "another relay answers", fix: "lead to this machine"}.expect(t, examine(t, flags))
		if err := two.app.stopOnce(); err != nil {
			t.Fatal(err)
		}
		situation{check: "served store", verdict: relay.VerdictFail, says: "no server has this store", fix: "stop it and start it again"}.expect(t, examine(t, flags))
	})
}
