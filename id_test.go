package relay_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"relay"
)

func TestIDRoundTrip(t *testing.T) {
	t.Parallel()
	for range 1000 {
		var id relay.ID
		rand.Read(id[:])
		s := id.String()
		if len(s) != 30 || !strings.HasPrefix(s, relay.IDPrefix) {
			t.Fatalf("String() = %q", s)
		}
		got, err := relay.ParseID(s)
		if err != nil || got != id {
			t.Fatalf("ParseID(%q) = %v, %v; want %v", s, got, err, id)
		}
	}
}

func TestIDTextOrderIsByteOrder(t *testing.T) {
	t.Parallel()
	ids := make([]relay.ID, 200)
	for i := range ids {
		rand.Read(ids[i][:])
	}
	slices.SortFunc(ids, func(a, b relay.ID) int { return bytes.Compare(a[:], b[:]) })
	if !slices.IsSortedFunc(ids, func(a, b relay.ID) int { return strings.Compare(a.String(), b.String()) }) {
		t.Error("ids sorted by bytes are not sorted by text")
	}
}

func TestParseIDRefuses(t *testing.T) {
	t.Parallel()
	good := relay.ID{1, 2, 3}.String()
	for _, s := range []string{
		"", "evt_", good[4:], "tok_" + good[4:], good + "0", good[:29], strings.ToUpper(good),
		"evt_8" + good[5:], "evt_" + strings.Repeat("u", 26), good + "\n", "evt_" + strings.Repeat("é", 13),
	} {
		if id, err := relay.ParseID(s); !errors.Is(err, relay.ErrNotFound) {
			t.Errorf("ParseID(%q) = %v, %v; want not-found", s, id, err)
		}
	}
}

func TestIDScan(t *testing.T) {
	t.Parallel()
	want := relay.ID{0x01, 0x9a, 0xff, 3: 0x10, 15: 0xee}
	for name, src := range map[string]any{
		"raw":  want[:],
		"uuid": []byte("019aff10-0000-0000-0000-0000000000ee"),
		"text": "019aff10-0000-0000-0000-0000000000ee",
	} {
		var got relay.ID
		if err := got.Scan(src); err != nil || got != want {
			t.Errorf("%s: Scan = %v, %v; want %v", name, got, err, want)
		}
	}
	for _, bad := range []any{nil, 7, []byte("short"), "019aff10-0000-0000-0000-0000000000eg", []byte{}} {
		var got relay.ID
		if err := got.Scan(bad); err == nil {
			t.Errorf("Scan(%v) accepted", bad)
		}
	}
}
