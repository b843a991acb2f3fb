package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// besides opens a store the way an operator command does.
func besides(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	return mustOpen(t, store.Options{URL: o.URL, DataDir: o.DataDir, NoCreate: true})
}

// findings returns the results of all checks by name.
func findings(t *testing.T, s *store.Store) map[string]relay.Finding {
	t.Helper()
	found := map[string]relay.Finding{}
	for _, f := range s.Examine(t.Context()) {
		found[f.Check] = f
	}
	return found
}

// Examine finds missing bytes of a request, of a response and of a part of a large body, and an attempt without
// its event. It does not report parts that belong to no event.
func TestExamineFindsMissingBytes(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias, db, beside := withAlias(t, s), database(t, o), besides(t, o)
		stored(t, s, eventAt(s, alias, time.Now(), relay.StateDelivering, "x"))
		large := eventAt(s, alias, time.Now(), relay.StateQueued, "")
		large.Request.Body = relay.Body{Parts: 2, Stored: 8, Size: 8, State: relay.BodyComplete}
		settled(t, s.Chunk(large.ID, 0, 0, []byte("four")), s.Chunk(large.ID, 0, 1, []byte("more")), s.Accept(large))
		for _, step := range []struct{ query, check string }{
			{`SELECT 1`, ""},
			{`DELETE FROM body_chunks WHERE i = 1`, "stored bytes"},
			{`UPDATE payloads SET parts = 1 WHERE parts = 2`, ""},
			{`DELETE FROM payloads WHERE n = 1`, "stored bytes"},
			{`UPDATE attempts SET has_response = 0`, ""},
			{`DELETE FROM payloads`, "stored bytes"},
			{`DELETE FROM events`, "attempt counts"},
			{`DELETE FROM attempts`, ""},
		} {
			if _, err := db.Exec(step.query); err != nil {
				t.Fatal(err)
			}
			for name, f := range findings(t, beside) {
				if name != "stored bytes" && name != "attempt counts" {
					continue
				}
				if bad := f.Verdict == relay.VerdictFail; bad != (name == step.check) || bad && (f.Reason == "" || f.Fix == "") {
					t.Errorf("after %s: %+v", step.query, f)
				}
			}
		}
	})
}

// Examine finds a corrupted page that no query reads.
func TestExamineFindsDamagedPages(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	s := mustServe(t, o)
	alias := withAlias(t, s)
	for range 30 {
		stored(t, s, eventAt(s, alias, time.Now(), relay.StateDelivering, strings.Repeat("x", 3000)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if f := findings(t, besides(t, o))["pages"]; f.Verdict != relay.VerdictOK {
		t.Errorf("a sound file: %+v", f)
	}
	file := filepath.Join(o.DataDir, "relay.db")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	at := bytes.LastIndex(content, []byte("xxxxxxxx")) / page * page
	copy(content[at:at+page], bytes.Repeat([]byte{0xa5}, page))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := findings(t, besides(t, o))["pages"]; f.Verdict != relay.VerdictFail || !strings.Contains(f.Reason, "damaged") || !strings.Contains(f.Fix, "backup") {
		t.Errorf("a damaged file: %+v", f)
	}
}

// TestExamineAfterAKill: an attempt that is still in the state delivering after its server was killed is only a
// warning. The next start corrects it. Restored backups may contain such attempts too.
func TestExamineAfterAKill(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias := withAlias(t, s)
		settled(t, s.Accept(eventAt(s, alias, time.Now(), relay.StateDelivering, "x")))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		beside := besides(t, o)
		found := false
		for _, f := range beside.Examine(t.Context()) {
			if f.Check == "under way" {
				found = true
				if f.Verdict != relay.VerdictWarn || f.Fix == "" {
					t.Errorf("got %+v", f)
				}
			}
		}
		if !found {
			t.Error("it is not looked at")
		}
	})
}
