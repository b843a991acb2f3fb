package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/relaytest"
	"relay/store/pgtest"
)

// TestMigrateStore moves a server from SQLite to Postgres with a command that is killed repeatedly. The token
// works, every event keeps its bytes, and the SQLite file is unchanged. Wrong calls of the command are
// refused.
func TestMigrateStore(t *testing.T) {
	t.Parallel()
	dir, url := t.TempDir(), pgtest.URL(t)
	h := newTestServer(t, map[string]string{"data-dir": dir})
	if _, err := h.app.store.CreateAlias(t.Context(), relay.System(), "shop", h.start.Admin); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("\x00\xff body\r\n", 100_000)
	for range 12 {
		if answer := h.send("POST /hook?x=%00 HTTP/1.1\r\nhOST: shop.localhost\r\nX-Odd:  \xe4 \r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x;x=y\r\n%s\r\n0\r\nEnd: yes\r\n\r\n", len(body), body)); !strings.Contains(answer, " 202 ") {
			t.Fatal(answer)
		}
	}
	raws := func(h *testServer) map[string]string {
		t.Helper()
		var list struct{ Data []record.Summary }
		if status := h.api(http.MethodGet, "/events?limit=50&alias=shop", "", &list); status != http.StatusOK {
			t.Fatalf("events: %d", status)
		}
		all := map[string]string{}
		for _, e := range list.Data {
			var raw []byte
			if status := h.api(http.MethodGet, "/events/"+e.ID+"/request.raw", "", &raw); status != http.StatusOK || !strings.Contains(string(raw), "hOST") {
				t.Fatalf("%s: %d, %d bytes", e.ID, status, len(raw))
			}
			all[e.ID] = string(raw)
		}
		return all
	}
	before := raws(h)
	migrate := func(args ...string) (string, int) {
		t.Helper()
		var out, errs relaytest.Buffer
		code := run(t.Context(), append([]string{"migrate-store", "--data-dir", dir}, args...), env(), &out, &errs)
		return out.String() + errs.String(), code
	}
	if text, code := migrate("--to", url); code != cli.ExitFailure || !strings.Contains(text, "already serves") {
		t.Errorf("beside a server: exit %d: %s", code, text)
	}
	if text, code := migrate(); code != cli.ExitUsage {
		t.Errorf("without --to: exit %d: %s", code, text)
	}
	// In these URLs a part of the password has the place of the host or the database.
	for _, wrong := range []string{"postgres://u:pa@geheim/word@h/d", "postgres://u:pa?geheim@h/d", "host=h password=geheim", "mysql://u:geheim@h/d"} {
		if text, code := migrate("--to", wrong); code != cli.ExitUsage || strings.Contains(strings.ToLower(text), "geheim") {
			t.Errorf("--to %s: exit %d: %s", wrong, code, text)
		}
	}
	if text, code := migrate("--to", url, "--database-url", url); code != cli.ExitFailure || !strings.Contains(text, "leave out --database-url") {
		t.Errorf("with a Postgres in the settings: exit %d: %s", code, text)
	}
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for wait := 300 * time.Millisecond; ; wait *= 2 {
		cmd := exec.Command("relayd", "migrate-store", "--data-dir", dir, "--to", url)
		cmd.Env = append(os.Environ(), "HOME="+dir, "GORACE="+hurry)
		p := relaytest.StartSeparate(t, cmd)
		select {
		case <-p.Ended():
		case <-time.After(wait):
			p.Kill()
			kills++
			continue
		}
		place := "copying sqlite " + filepath.Join(dir, databaseFile) + " to postgres " + databasePlace(url) + "\n"
		if code := p.Code(t, time.Second); code != cli.ExitOK || !strings.Contains(p.Out.String(), "payloads") || !strings.Contains(p.Err.String(), place) {
			t.Fatalf("exit %d: %s%s", code, p.Out, p.Err)
		}
		break
	}
	t.Logf("killed %d times", kills)
	if text, code := migrate("--to", url); code != cli.ExitOK || !strings.Contains(text, "payloads") { // as if the earlier command was killed just before its exit
		t.Errorf("once more: exit %d: %s", code, text)
	}
	after, err := os.ReadFile(filepath.Join(dir, databaseFile))
	if err != nil || !bytes.Equal(file, after) {
		t.Errorf("the file of SQLite was changed: %v", err)
	}
	h.flags["database-url"] = url
	h.open()
	got := raws(h)
	if len(got) != 12 || len(before) != 12 {
		t.Fatalf("%d events before, %d now", len(before), len(got))
	}
	for id, raw := range before {
		if got[id] != raw {
			t.Errorf("event %s has other bytes", id)
		}
	}
	if out, code := h.operate("alias", "list"); code != cli.ExitOK || !strings.Contains(out, "12") {
		t.Errorf("the queue: exit %d: %s", code, out)
	}
	if out, code := h.operate("user", "add", "somebody"); code != cli.ExitOK {
		t.Fatalf("exit %d: %s", code, out)
	}
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	if text, code := migrate("--to", url); code != cli.ExitFailure || !strings.Contains(text, "has relay data already") {
		t.Errorf("into a database with other data: exit %d: %s", code, text)
	}
}
