package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"relay"
	"relay/store"
)

// A call with an Idempotency-Key that was interrupted by the end of its server can be
// repeated on the next server, which is another node. The response of a completed call stays stored.
func TestIdempotencyAfterTakeover(t *testing.T) {
	t.Parallel()
	for name, o := range engines(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who := relay.Actor{Kind: relay.ActorToken, Credential: "tok_1"}
			begin := func(s *store.Store, key string, want int) {
				t.Helper()
				if status, _, err := s.BeginIdempotent(t.Context(), who, key, "POST /a"); err != nil || status != want {
					t.Fatalf("key %s: status %d, %v, want %d", key, status, err, want)
				}
			}
			first := mustServe(t, o)
			begin(first, "cut", 0)
			begin(first, "done", 0)
			if err := first.EndIdempotent(t.Context(), who, "done", 202, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			o = otherNode(t, o)
			second := mustServe(t, o)
			begin(second, "cut", 0)
			begin(second, "done", 202)
		})
	}
}

// otherNode returns the options o for another node on the same store. On Postgres the node has its own data
// dir. On SQLite it has the same data dir, from which the id of the first node is removed.
func otherNode(t *testing.T, o store.Options) store.Options {
	t.Helper()
	if o.URL != "" {
		o.DataDir = t.TempDir()
		return o
	}
	if err := os.Remove(filepath.Join(o.DataDir, "node-id")); err != nil {
		t.Fatal(err)
	}
	return o
}
