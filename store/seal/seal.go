// Package seal encrypts small secrets that the database stores: it uses XChaCha20-Poly1305 with a random
// nonce for each. A sealed value opens only for the purpose, the alias and the row for which it was sealed.
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

// prefix begins the text form of a key.
const prefix = "rsk1_"

// Key encrypts and decrypts values. Formatting a key gives its id.
type Key struct {
	bytes [chacha20poly1305.KeySize]byte
}

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k.bytes[:]) // never fails
	return k
}

// ParseKeys reads keys that are separated by line ends, spaces or commas; a text without keys gives nil. The
// error never contains a part of a key.
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

// Text returns the key in the form that ParseKeys reads.
func (k Key) Text() string { return prefix + base64.StdEncoding.EncodeToString(k.bytes[:]) }

// ID returns a name for the key, which reveals nothing about it.
func (k Key) ID() string {
	sum := sha256.Sum256(append([]byte("relay secret key\x00"), k.bytes[:]...))
	return hex.EncodeToString(sum[:4])
}

// Format writes the id, whatever the verb, so that a key never gets into a log.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("key " + k.ID())) }

func (k Key) aead() cipher.AEAD {
	a, err := chacha20poly1305.NewX(k.bytes[:])
	if err != nil {
		panic(err) // happens only if the key has another length
	}
	return a
}

// Place is the context to which an encrypted value is bound.
type Place struct {
	Purpose string // such as sender-secret
	Alias   int64
	Row     string // id of the row
}

func (p Place) bytes() []byte {
	return []byte("relay sealed v1\x00" + p.Purpose + "\x00" + strconv.FormatInt(p.Alias, 10) + "\x00" + p.Row)
}

// Ring holds the keys of this node, from a setting, or else from a file. The first key encrypts, and all
// keys decrypt. A Ring is safe for concurrent use.
type Ring struct {
	file string // path of the key file; "" = no file

	mu   sync.Mutex
	keys []Key
}

// NewRing returns a ring of the given keys. If there are none, the ring has the keys of the file, which
// this process or another one may make later; file "" = there is no such file.
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
	ErrGone    = errors.New("the file of the keys is gone: secrets encrypted now could not be decrypted after a restart")
	ErrDamaged = errors.New("the key is here, but it does not open this row: it was changed or copied")
)

// read reads the file again. If the file is missing, the keys that were read earlier stay in memory, because
// existing values need them, and the error is ErrGone. If no key was read earlier either, the error is nil.
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

// Keys lists the keys; the first one encrypts. It fails with ErrGone if the file was removed, although its
// keys can still decrypt values.
func (r *Ring) Keys() ([]Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.read()
	return slices.Clone(r.keys), err
}

// File returns the path of the key file; "" if the keys come from a setting, or there can be none.
func (r *Ring) File() string { return r.file }

// Make makes the file with a first key, unless the file exists. The error is ErrNoKey if the ring has no file.
func (r *Ring) Make() error {
	if r.file == "" {
		return ErrNoKey
	}
	err := file.Create(r.file, []byte(NewKey().Text()+"\n"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("store a key for secrets: %w", err)
	}
	return nil
}

// Rotate makes a new key and puts it first in the file. It returns ErrNoKey if the ring has no key: the first
// key is made only by Make. It does nothing if the keys come from a setting. If two processes rotate at once,
// the second waits, so that no key in use is lost.
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
	if err := r.read(); err != nil { // another process may have rotated meanwhile
		return err
	}
	text := NewKey().Text() + "\n"
	for _, k := range r.keys {
		text += k.Text() + "\n"
	}
	return file.Write(r.file, []byte(text))
}

// Seal seals a value for a place with the first key, and returns the id of that key.
func (r *Ring) Seal(value string, p Place) (sealed []byte, key string, err error) {
	keys, err := r.Keys()
	if err != nil || len(keys) == 0 {
		return nil, "", cmp.Or(err, ErrNoKey)
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(value)+chacha20poly1305.Overhead)
	_, _ = rand.Read(nonce) // never fails
	return keys[0].aead().Seal(nonce, nonce, []byte(value), p.bytes()), keys[0].ID(), nil
}

// Open decrypts a value that was encrypted for a place with the key that has the given id.
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
