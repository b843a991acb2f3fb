// Package seal encrypts small secrets that the database keeps: XChaCha20-Poly1305 with a
// random nonce each. A sealed value opens only for the purpose, the alias and the row that it
// was sealed for.
package seal

import (
	"cmp"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/chacha20poly1305"

	"relay/store/file"
)

// prefix begins the text of a key.
const prefix = "rsk1_"

// Key seals and opens. Formatting one gives its id.
type Key struct {
	bytes [chacha20poly1305.KeySize]byte
}

// NewKey makes a random key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k.bytes[:]) // never fails
	return k
}

// ParseKeys reads keys, each in a line of its own. No error holds a part of one.
func ParseKeys(text string) ([]Key, error) {
	var keys []Key
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		encoded, ok := strings.CutPrefix(word, prefix)
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			raw, err = base64.RawStdEncoding.DecodeString(encoded)
		}
		if !ok || err != nil || len(raw) != chacha20poly1305.KeySize {
			return nil, fmt.Errorf("key %d is not %s and the base64 of 32 bytes; make one with: relayd secret-key new", i+1, prefix)
		}
		k := Key{[chacha20poly1305.KeySize]byte(raw)}
		if slices.Contains(keys, k) {
			return nil, fmt.Errorf("key %d is there twice; remove one of the two", i+1)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// Text returns the key as ParseKeys reads it.
func (k Key) Text() string { return prefix + base64.StdEncoding.EncodeToString(k.bytes[:]) }

// ID names a key, and tells nothing about it.
func (k Key) ID() string {
	sum := sha256.Sum256(append([]byte("relay secret key\x00"), k.bytes[:]...))
	return hex.EncodeToString(sum[:4])
}

// Format writes the id, whatever the verb: a key never gets into a log.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("key " + k.ID())) }

func (k Key) aead() cipher.AEAD {
	a, err := chacha20poly1305.NewX(k.bytes[:])
	if err != nil {
		panic(err) // only for another length
	}
	return a
}

// Place is the context to which an encrypted value is bound.
type Place struct {
	Purpose string // such as sender-secret
	Alias   int64
	Row     string // its id
}

func (p Place) bytes() []byte {
	return []byte("relay sealed v1\x00" + p.Purpose + "\x00" + strconv.FormatInt(p.Alias, 10) + "\x00" + p.Row)
}

// Ring has the keys of this node: those of a setting, or else those of a file. The first one
// seals, all open. Safe for concurrent use.
type Ring struct {
	file string // "" = there is none

	mu   sync.Mutex
	keys []Key
}

// NewRing returns a ring of given keys. Without any it has those of the file, which may be made
// later by this process or another one; file "" = there is no such file.
func NewRing(given []Key, file string) *Ring {
	if len(given) > 0 {
		file = ""
	}
	return &Ring{file: file, keys: slices.Clone(given)}
}

// Errors of a ring.
var (
	ErrNoKey   = errors.New("this node has no key to seal with")
	ErrOther   = errors.New("no key of this node opens it")
	ErrGone    = errors.New("the file of the keys is gone: what they seal now would not open after a restart")
	ErrDamaged = errors.New("the key is here, but it does not open this row: it was changed or copied")
)

// read reads the file again. Without it, keys that were read before stay in memory: they open what
// they have sealed.
func (r *Ring) read() error {
	if r.file == "" {
		return nil
	}
	text, err := os.ReadFile(r.file)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
	case len(r.keys) > 0:
		return ErrGone
	default:
		return nil
	}
	var keys []Key
	if err == nil {
		keys, err = ParseKeys(string(text))
	}
	if err != nil {
		return fmt.Errorf("read the keys in %s: %w", r.file, err)
	}
	r.keys = keys
	return nil
}

// Keys lists the keys, the one that seals first. It fails with ErrGone once the file is gone, although its
// keys still open.
func (r *Ring) Keys() ([]Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.read()
	return slices.Clone(r.keys), err
}

// File returns the file of the keys; "" where they are those of a setting, or there can be none.
func (r *Ring) File() string { return r.file }

// Make makes the file with its first key, unless it is there.
func (r *Ring) Make() error {
	if r.file == "" {
		return ErrNoKey
	}
	err := file.Create(r.file, []byte(NewKey().Text()+"\n"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep a key for secrets: %w", err)
	}
	return nil
}

// Rotate puts a new key first into the file. The keys of a setting stay as they are. Without a key it
// fails: a first one is made by Make only, where no secret is sealed yet. Of processes that rotate at once
// the second waits, so that no key that seals something is lost.
func (r *Ring) Rotate() (err error) {
	if r.file == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.read(); err != nil {
		return err
	}
	if len(r.keys) == 0 {
		return ErrNoKey
	}
	lock, err := file.Open(r.file+".lock", os.O_RDWR)
	if err == nil {
		err = file.Lock(lock, true)
	}
	if err != nil {
		return fmt.Errorf("lock the keys: %w", err)
	}
	defer func() { err = errors.Join(err, file.Unlock(lock)) }()
	if err := r.read(); err != nil { // another process may have rotated
		return err
	}
	text := NewKey().Text() + "\n"
	for _, k := range r.keys {
		text += k.Text() + "\n"
	}
	return file.Write(r.file, []byte(text))
}

// Seal seals a value for a place with the first key, and gives the id of that.
func (r *Ring) Seal(value string, p Place) (sealed []byte, key string, err error) {
	keys, err := r.Keys()
	if err != nil || len(keys) == 0 {
		return nil, "", cmp.Or(err, ErrNoKey)
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(value)+chacha20poly1305.Overhead)
	_, _ = rand.Read(nonce) // never fails
	return keys[0].aead().Seal(nonce, nonce, []byte(value), p.bytes()), keys[0].ID(), nil
}

// Open opens what the key of that id has sealed for a place.
func (r *Ring) Open(sealed []byte, key string, p Place) (string, error) {
	k, err := r.find(key)
	if err != nil {
		return "", err
	}
	if len(sealed) < chacha20poly1305.NonceSizeX {
		return "", ErrDamaged
	}
	nonce, text := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	value, err := k.aead().Open(nil, nonce, text, p.bytes())
	if err != nil {
		return "", ErrDamaged
	}
	return string(value), nil
}

// find finds a key in memory, or else in the file.
func (r *Ring) find(id string) (Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for again := range 2 {
		for _, k := range r.keys {
			if k.ID() == id {
				return k, nil
			}
		}
		if again == 0 {
			err = r.read()
		}
	}
	return Key{}, cmp.Or(err, ErrOther)
}
