package client

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay/cli"
	"relay/record"
)

// hostKeys checks the identity of a server. The check cannot be skipped: a key is pinned, known, or accepted
// on first use, which is allowed for loopback addresses or if the user confirms it.
type hostKeys struct {
	pin      string   // the only accepted key, SHA256:…; "" = none
	files    []string // known_hosts files that are read
	own      string   // the known_hosts file that is written
	expected *expectedKeys
	prompter Prompter
	// keepNothing: an accepted key is not stored.
	keepNothing bool
	say         func(string)

	library   ssh.HostKeyCallback // the check by package knownhosts, which comments call the library
	sources   []string            // the file of each line that the library has read; nil = the library has read the files themselves
	authority map[place]bool      // the lines of certificate authorities
	accepted  bool                // the check has passed
}

// place is a line of a known_hosts file; the first line is 1.
type place struct {
	file string
	line int
}

// expectedKeys are the host keys that a base URL names for an address. When the Dialer with these keys logs in,
// they replace the keys that this program stored before. The expected keys are stored only after the relay at
// the address has confirmed the base URL.
type expectedKeys struct {
	addr string
	keys []ssh.PublicKey
}

// load reads the known_hosts files; a missing file counts as empty. Like ssh, it skips lines that it cannot
// parse. The library would reject the whole file for one such line.
func (h *hostKeys) load() (err error) {
	h.sources, h.authority = nil, map[place]bool{}
	var there []string
	var lines [][]byte
	var sources []string
	asTheyAre := h.expected == nil // the library can read the files directly
	for _, file := range append(slices.Clone(h.files), h.own) {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && (file != h.own || h.expected == nil) {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return cli.Errorf(cli.ExitRefused, "cannot read the known host keys: %v", err)
		}
		there = append(there, file)
		if file == h.own && h.expected != nil {
			text = replaceKeys(text, h.expected.addr, h.expected.keys)
		}
		unmarked := record.DecodeText(text)
		asTheyAre = asTheyAre && len(unmarked) == len(text)
		number := 0
		for line := range bytes.Lines(unmarked) {
			number++
			marker, _, _, _, _, err := ssh.ParseKnownHosts(line)
			switch {
			case err != nil:
			case marker == "cert-authority":
				h.authority[place{file, number}] = true
			default:
				lines, sources = append(lines, append(bytes.TrimRight(line, "\r\n"), '\n')), append(sources, file)
			}
		}
	}
	if asTheyAre {
		if h.library, err = knownhosts.New(there...); err == nil {
			return nil
		}
	}
	return h.loadLines(lines, sources)
}

// loadLines sets up the check from lines; sources has the file of each line.
func (h *hostKeys) loadLines(lines [][]byte, sources []string) error {
	known, bad, err := knownLines(lines...)
	if bad != nil { // rare: a marker or a pattern that ssh.ParseKnownHosts does not check
		var good [][]byte
		var goodSources []string
		for i, line := range lines {
			_, bad, err := knownLines(line)
			if err != nil {
				return err
			}
			if bad == nil {
				good, goodSources = append(good, line), append(goodSources, sources[i])
			}
		}
		sources = goodSources
		if known, bad, err = knownLines(good...); bad != nil {
			return cli.Errorf(cli.ExitRefused, "cannot read the known host keys: %v", bad)
		}
	}
	h.library, h.sources = known, sources
	return err
}

// knownLines returns the check of host keys by lines of known_hosts; bad is set if a line cannot be parsed.
// The library reads only files, so the lines go to a temporary file.
func knownLines(lines ...[]byte) (known ssh.HostKeyCallback, bad, err error) {
	temp, err := os.CreateTemp("", "relay-known-hosts-")
	if err != nil {
		return nil, nil, fmt.Errorf("read known hosts: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(bytes.Join(lines, nil))
	if err = errors.Join(err, temp.Close()); err != nil {
		return nil, nil, fmt.Errorf("read known hosts: %w", err)
	}
	known, err = knownhosts.New(temp.Name())
	if _, unread := errors.AsType[*os.PathError](err); unread { // the file could not be read; its lines may be valid
		return nil, nil, fmt.Errorf("read known hosts: %w", err)
	}
	return known, err, nil
}

// known checks a key as ssh does: nil means that the key is known for the address; a *knownhosts.KeyError lists
// the known keys, if any. Another error of the library means, for example, that the key is revoked.
func (h *hostKeys) known(addr string, remote net.Addr, key ssh.PublicKey) error {
	err := h.library(addr, remote, key)
	if _, isOther := errors.AsType[*knownhosts.KeyError](err); err != nil && !isOther {
		return err
	}
	want := h.wanted(addr)
	if slices.ContainsFunc(want, func(k knownhosts.KnownKey) bool { return bytes.Equal(k.Key.Marshal(), key.Marshal()) }) {
		return nil
	}
	return &knownhosts.KeyError{Want: want}
}

// wanted returns the keys known for an address. The library returns them only in the error of a failed check,
// so wanted checks a key of zeros, which always fails. The keys of certificate authorities are left out: they
// are not host keys, and this client requests no certificate.
func (h *hostKeys) wanted(addr string) []knownhosts.KnownKey {
	zeros, err := ssh.NewPublicKey(make(ed25519.PublicKey, ed25519.PublicKeySize))
	var unknown *knownhosts.KeyError
	if err != nil || !errors.As(h.library(addr, &net.TCPAddr{}, zeros), &unknown) {
		return nil
	}
	return slices.DeleteFunc(unknown.Want, func(k knownhosts.KnownKey) bool {
		return h.sources == nil && h.authority[place{k.Filename, k.Line}]
	})
}

// algorithms returns the host key algorithms to offer: the types of the keys that are known for the address, or
// all types if no key is known or one is pinned. If other types were offered, the server could show a key of
// such a type, which would look like a changed key.
func (h *hostKeys) algorithms(addr string) []string {
	all := []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512,
	}
	want := h.wanted(addr)
	if h.pin != "" || len(want) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(algo string) bool {
		return !slices.ContainsFunc(want, func(k knownhosts.KnownKey) bool {
			t := k.Key.Type()
			return t == algo || t == ssh.KeyAlgoRSA && strings.HasPrefix(algo, "rsa-")
		})
	})
}

// check is the ssh.HostKeyCallback. It runs before the client sends any of its keys.
func (h *hostKeys) check(addr string, remote net.Addr, key ssh.PublicKey) error {
	shown := ssh.FingerprintSHA256(key)
	err := h.known(addr, remote, key)
	unknown, isUnknown := errors.AsType[*knownhosts.KeyError](err)
	switch {
	case h.pin != "":
		if strings.TrimRight(h.pin, "=") != shown {
			return cli.Errorf(cli.ExitRefused, "the host key of %s is %s, not the pinned %s", addr, shown, h.pin).
				WithHint("another server may be intercepting the connection; ask the operator of the relay for its fingerprint")
		}
	case err == nil:
	case isUnknown && len(unknown.Want) == 0:
		if err := h.first(addr, remote, key); err != nil {
			return err
		}
	case isUnknown:
		var known []string
		for _, k := range unknown.Want {
			known = append(known, ssh.FingerprintSHA256(k.Key))
		}
		return cli.Errorf(cli.ExitRefused, "the host key of %s has changed: it shows %s, known is %s", addr, shown, strings.Join(known, " or ")).
			WithHint("another server may be intercepting the connection; if the relay was reinstalled, remove the old line: ssh-keygen -R '%s' -f %s",
				knownhosts.Normalize(addr), h.fileOf(addr))
	default:
		return &cli.Error{Exit: cli.ExitRefused, Text: "the host key of " + addr + " is not accepted", Cause: err}
	}
	h.accepted = true
	return nil
}

// fileOf returns the file that holds a key of the address, or own if no key is known.
func (h *hostKeys) fileOf(addr string) string {
	if want := h.wanted(addr); len(want) > 0 {
		if h.sources != nil {
			return h.sources[want[0].Line-1]
		}
		return want[0].Filename
	}
	return h.own
}

// first decides whether to accept the key of a host for which no key is known.
func (h *hostKeys) first(addr string, remote net.Addr, key ssh.PublicKey) error {
	shown := ssh.FingerprintSHA256(key)
	tcp, ok := remote.(*net.TCPAddr)
	switch {
	case ok && tcp.IP.IsLoopback():
		h.say("accepted the host key " + shown + " of " + addr + ": first use, on this machine")
	case h.prompter != nil && h.prompter.Confirm("the host key of "+addr+" is not known: "+shown+"\nis that the relay's fingerprint?"):
	default:
		return cli.Errorf(cli.ExitRefused, "the host key of %s is not known: it shows %s", addr, shown).
			WithHint("ask the operator of the relay for its fingerprint and pass --host-key %s", shown)
	}
	if h.keepNothing {
		return nil
	}
	if err := h.store(addr, key); err != nil {
		h.say("warning: the host key could not be stored, so it is a first use next time too: " + err.Error())
		return nil
	}
	h.say("the host key of " + addr + " is stored in " + h.own)
	return nil
}

// store replaces the keys that this program stored for an address by the given keys.
func (h *hostKeys) store(addr string, keys ...ssh.PublicKey) error {
	return withLock(filepath.Dir(h.own), func() error {
		old, err := os.ReadFile(h.own)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return writePrivate(h.own, replaceKeys(old, addr, keys))
	})
}

// replaceKeys returns old, the text of a known_hosts file, with a change: the address has the given keys and no
// others.
func replaceKeys(old []byte, addr string, keys []ssh.PublicKey) []byte {
	var text bytes.Buffer
	name := []byte(knownhosts.Normalize(addr) + " ")
	for line := range bytes.Lines(old) {
		if !bytes.HasPrefix(line, name) {
			text.Write(append(bytes.TrimRight(line, "\r\n"), '\n'))
		}
	}
	for _, key := range keys {
		text.WriteString(knownhosts.Line([]string{addr}, key) + "\n")
	}
	return text.Bytes()
}

// stored returns the keys of an address that this program stored before.
func (h *hostKeys) stored(addr string) (keys []ssh.PublicKey, err error) {
	text, err := os.ReadFile(h.own)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(knownhosts.Normalize(addr)+" ")) {
			if _, _, key, _, _, bad := ssh.ParseKnownHosts(line); bad == nil {
				keys = append(keys, key)
			}
		}
	}
	return keys, err
}

// Expect makes the dialer accept the host keys that a base URL names for the server. It does not store them,
// because any site can name any SSH address as its own; KeepExpected does, after the relay at the address has
// confirmed the base URL. If this program has stored keys before, Expect fails unless one of them is among the
// new keys, or replace is set, which means that the stored keys came from the same base URL. A different key in
// the user's own known_hosts still fails the check, because only the user can decide which key is right.
func (d *Dialer) Expect(keys []ssh.PublicKey, replace bool) error {
	addr, err := d.Addr()
	if err != nil {
		return err
	}
	h := d.hostKeys()
	before, err := h.stored(addr)
	if err != nil {
		return err
	}
	if replace || len(before) == 0 {
		d.expected = &expectedKeys{addr: addr, keys: keys}
		return nil
	}
	isStored := func(key ssh.PublicKey) bool {
		return slices.ContainsFunc(before, func(b ssh.PublicKey) bool { return bytes.Equal(b.Marshal(), key.Marshal()) })
	}
	if slices.ContainsFunc(keys, isStored) {
		return nil
	}
	return cli.Errorf(cli.ExitRefused, "the known host key of %s is %s, but the base URL names another", addr, ssh.FingerprintSHA256(before[0])).
		WithHint("if the relay was reinstalled, remove the old line: ssh-keygen -R '%s' -f %s", knownhosts.Normalize(addr), h.own)
}

// KeepExpected stores the keys that the dialer expects.
func (d *Dialer) KeepExpected() error {
	if d.expected == nil {
		return nil
	}
	return d.hostKeys().store(d.expected.addr, d.expected.keys...)
}

// WithIdentity returns a dialer to the same server that logs in only with the key in the given file.
func (d *Dialer) WithIdentity(file string) *Dialer {
	other := d.copy()
	other.Identity = file
	return other
}

// copy returns a new dialer with the same settings.
func (d *Dialer) copy() *Dialer {
	return &Dialer{
		Server: d.Server, Identity: d.Identity, HostKey: d.HostKey, Home: d.Home, StateDir: d.StateDir,
		Agent: d.Agent, Version: d.Version, Prompter: d.Prompter, Say: d.Say, KeepNothing: d.KeepNothing, connect: d.connect, expected: d.expected,
	}
}
