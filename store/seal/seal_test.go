package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"relay/store/file"
)

func TestSealedOpensOnlyInItsPlace(t *testing.T) {
	const value = "whsec_value"
	place := Place{"sender-secret", 7, "sec_a"}
	first, second := NewKey(), NewKey()
	ring := NewRing([]Key{first, second}, "")
	sealed, key, err := ring.Seal(value, place)
	if err != nil || key != first.ID() || bytes.Contains(sealed, []byte(value)) {
		t.Fatalf("sealed by %s: %q, %v", key, sealed, err)
	}
	if again, _, _ := ring.Seal(value, place); bytes.Equal(again, sealed) {
		t.Error("two sealed values are equal: the nonce is not random")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		ring   *Ring
		sealed []byte
		key    string
		place  Place
		want   error
	}{
		"as sealed":       {ring, sealed, key, place, nil},
		"rotated":         {NewRing([]Key{second, first}, ""), sealed, key, place, nil},
		"without the key": {NewRing([]Key{second}, ""), sealed, key, place, ErrOther},
		"no key at all":   {NewRing(nil, ""), sealed, key, place, ErrOther},
		"wrong key id":    {ring, sealed, second.ID(), place, ErrDamaged},
		"other purpose":   {ring, sealed, key, Place{"other", 7, "sec_a"}, ErrDamaged},
		"other alias":     {ring, sealed, key, Place{"sender-secret", 8, "sec_a"}, ErrDamaged},
		"other row":       {ring, sealed, key, Place{"sender-secret", 7, "sec_b"}, ErrDamaged},
		"changed":         {ring, changed, key, place, ErrDamaged},
		"cut":             {ring, sealed[:20], key, place, ErrDamaged},
	} {
		got, err := c.ring.Open(c.sealed, c.key, c.place)
		if !errors.Is(err, c.want) || err == nil && got != value || err != nil && got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, _, err := NewRing(nil, "").Seal(value, place); !errors.Is(err, ErrNoKey) {
		t.Errorf("sealed without a key: %v", err)
	}
}

func TestParseKeys(t *testing.T) {
	a, b := NewKey(), NewKey()
	for name, c := range map[string]struct {
		text string
		want []Key
	}{
		"lines":    {a.Text() + "\n" + b.Text() + "\n", []Key{a, b}},
		"commas":   {b.Text() + "," + a.Text(), []Key{b, a}},
		"unpadded": {strings.TrimRight(a.Text(), "="), []Key{a}},
		"empty":    {"\n", nil},
	} {
		if got, err := ParseKeys(c.text); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, text := range map[string]string{
		"no prefix": strings.TrimPrefix(a.Text(), prefix), "short": prefix + "AAAA", "no base64": prefix + strings.Repeat("!", 44), "twice": a.Text() + "\n" + a.Text(),
	} {
		_, err := ParseKeys(text)
		if err == nil || strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %s %q %x", a, a, a, a, a, a); strings.Contains(text, a.Text()[len(prefix):20]) || strings.Count(text, a.ID()) != 6 {
		t.Errorf("a key is formatted as %s", text)
	}
}

// Several processes that create the key file at once get the same key.
func TestRingMakesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			ring := NewRing(nil, path)
			if err := ring.Make(); err != nil {
				t.Error(err)
			}
			keys, err := ring.Keys()
			if err != nil || len(keys) != 1 {
				t.Errorf("%d keys, %v", len(keys), err)
				return
			}
			ids[i] = keys[0].ID()
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("several keys were made: %v", ids)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := file.Create(path, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
}

// A key that another process creates or rotates is found without a restart.
func TestRingReadsItsFileAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	here, there := NewRing(nil, path), NewRing(nil, path)
	place := Place{"p", 1, "r"}
	if keys, err := here.Keys(); err != nil || len(keys) != 0 {
		t.Fatalf("%v, %v", keys, err)
	}
	if err := there.Make(); err != nil {
		t.Fatal(err)
	}
	old, oldKey, err := there.Seal("one", place)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := here.Open(old, oldKey, place); err != nil || got != "one" {
		t.Errorf("%q, %v", got, err)
	}
	if err := there.Rotate(); err != nil {
		t.Fatal(err)
	}
	sealed, key, err := there.Seal("two", place)
	if err != nil || key == oldKey {
		t.Fatalf("sealed by %s after a rotation, %v", key, err)
	}
	if got, err := here.Open(sealed, key, place); err != nil || got != "two" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := here.Open(old, oldKey, place); err != nil || got != "one" {
		t.Errorf("the old one: %q, %v", got, err)
	}
	// Two rings rotate one after the other. The second rotation keeps the key of the first one, although its
	// ring has not read that key yet. If the file is missing for a moment, the keys that were read stay
	// usable.
	for _, ring := range []*Ring{there, here} {
		if err := ring.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := there.Keys(); err != nil || len(keys) != 4 || keys[2].ID() != key || keys[3].ID() != oldKey {
		t.Errorf("after three rotations: %v, %v", keys, err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if keys, err := there.Keys(); !errors.Is(err, ErrGone) || len(keys) != 4 {
		t.Errorf("without the file: %v, %v", keys, err)
	}
	if got, err := there.Open(old, oldKey, place); err != nil || got != "one" {
		t.Errorf("without the file: %q, %v", got, err)
	}
}

// Without its key file a ring encrypts nothing more, because no process could decrypt the value after a
// restart. Existing secrets are decrypted from memory, and with a restored file the ring encrypts again.
func TestRingWithoutItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	ring, place := NewRing(nil, path), Place{"p", 1, "r"}
	if err := ring.Rotate(); !errors.Is(err, ErrNoKey) {
		t.Errorf("rotated without a key: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a rotation has made the first key")
	}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	sealed, key, err := ring.Seal("value", place)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ring.Seal("another", place); !errors.Is(err, ErrGone) {
		t.Errorf("sealed without the file: %v", err)
	}
	if err := ring.Rotate(); !errors.Is(err, ErrGone) {
		t.Errorf("rotated without the file: %v", err)
	}
	if got, err := ring.Open(sealed, key, place); err != nil || got != "value" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if _, again, err := ring.Seal("another", place); err != nil || again != key {
		t.Errorf("sealed by %s after the file was back: %v", again, err)
	}
}

// If several processes rotate at once, the file has the new key of each afterwards, because each process may
// encrypt a secret with its key at once.
func TestRotationsWaitForEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	if err := NewRing(nil, path).Make(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := NewRing(nil, path).Rotate(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if keys, err := NewRing(nil, path).Keys(); err != nil || len(keys) != 9 {
		t.Errorf("%d keys after 8 rotations, %v", len(keys), err)
	}
}
