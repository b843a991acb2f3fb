package store

import (
	"context"
	"testing"
	"time"
)

// A file without auto_vacuum, such as one that somebody rebuilt by hand, gives no pages
// back: retention ends there all the same.
func TestVacuumEndsWithoutAutoVacuum(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	for _, statement := range []string{`PRAGMA auto_vacuum = NONE`, `VACUUM`} {
		if _, err := s.write.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	large := make([]byte, 3*freePages/2*4096)
	if _, err := s.write.Exec(`INSERT INTO body_chunks (event_id, n, i, data) VALUES (?, 0, 0, ?)`, large[:16], large); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec(`DELETE FROM body_chunks`); err != nil {
		t.Fatal(err)
	}
	var free int
	if err := s.read.Get(&free, `PRAGMA freelist_count`); err != nil || free <= freePages+freePages/4 {
		t.Fatalf("%d pages are free, %v: nothing is tested", free, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.vacuum(ctx); err != nil {
		t.Error(err)
	}
}
