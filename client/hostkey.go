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
)

// hostKeys checks the identity of a server. The check cannot be skipped: a key is
// pinned, known, or accepted on first use, which is allowed for loopback addresses or
// when a person confirms it.
type hostKeys struct {
	pin      string   // SHA256:… that alone is accepted, or ""
	files    []string // known_hosts files that are read
	own      string   // the one that is written
	prompter Prompter
	say      func(string)

	known    ssh.HostKeyCallback
	sources  []string // the file of each line that known has read; nil = known has read the files themselves
	accepted bool     // the check has passed
}

// load reads the files; a missing one is empty. Lines that cannot be understood are left
// out, as ssh does: the library rejects a whole file for one of them.
func (h *hostKeys) load() (err error) {
	files := append(slices.Clone(h.files), h.own)
	there := slices.DeleteFunc(slices.Clone(files), func(file string) bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist)
	})
	h.sources = nil
	if h.known, err = knownhosts.New(there...); err == nil {
		return nil
	}
	var lines [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return cli.Errorf(cli.ExitRefused, "cannot read the known host keys: %v", err)
		}
		for line := range bytes.Lines(text) {
			if _, _, _, _, _, err := ssh.ParseKnownHosts(line); err == nil {
				lines = append(lines, append(bytes.TrimRight(line, "\r\n"), '\n'))
				h.sources = append(h.sources, file)
			}
		}
	}
	known, bad, err := knownLines(lines...)
	if bad != nil { // seldom: a marker or a pattern that ssh.ParseKnownHosts does not look at
		var good [][]byte
		var sources []string
		for i, line := range lines {
			_, bad, err := knownLines(line)
			if err != nil {
				return err
			}
			if bad == nil {
				good, sources = append(good, line), append(sources, h.sources[i])
			}
		}
		h.sources = sources
		if known, bad, err = knownLines(good...); bad != nil {
			return cli.Errorf(cli.ExitRefused, "cannot read the known host keys: %v", bad)
		}
	}
	h.known = known
	return err
}

// knownLines returns the check of host keys by lines of known_hosts; bad says that a line
// cannot be understood. The library reads nothing but files, so it gets a temporary one.
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
	if _, unread := errors.AsType[*os.PathError](err); unread { // the file, not a line of it
		return nil, nil, fmt.Errorf("read known hosts: %w", err)
	}
	return known, err, nil
}

// wanted returns the keys known for an address. The library returns them only as the error of a
// failed check, and a key of zeros fails it.
func (h *hostKeys) wanted(addr string) []knownhosts.KnownKey {
	zeros, err := ssh.NewPublicKey(make(ed25519.PublicKey, ed25519.PublicKeySize))
	var unknown *knownhosts.KeyError
	if err == nil && errors.As(h.known(addr, &net.TCPAddr{}, zeros), &unknown) {
		return unknown.Want
	}
	return nil
}

// algorithms returns the host key algorithms to offer: only types that are known for
// the address, because the server would otherwise show a key of another type, which
// looks like a changed key.
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

// check is the ssh.HostKeyCallback. It runs before the client sends anything about its
// keys.
func (h *hostKeys) check(addr string, remote net.Addr, key ssh.PublicKey) error {
	shown := ssh.FingerprintSHA256(key)
	err := h.known(addr, remote, key)
	unknown, isUnknown := errors.AsType[*knownhosts.KeyError](err)
	switch {
	case h.pin != "":
		if strings.TrimRight(h.pin, "=") != shown {
			return cli.Errorf(cli.ExitRefused, "the host key of %s is %s, not the pinned %s", addr, shown, h.pin).
				WithHint("somebody may be listening in between; ask the operator of the relay for its fingerprint")
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
			WithHint("somebody may be listening in between; if the relay was set up anew, remove the old line: ssh-keygen -R '%s' -f %s",
				knownhosts.Normalize(addr), h.fileOf(addr))
	default:
		return &cli.Error{Exit: cli.ExitRefused, Text: "the host key of " + addr + " is not accepted", Cause: err}
	}
	h.accepted = true
	return nil
}

// fileOf returns the file that holds a key of the address.
func (h *hostKeys) fileOf(addr string) string {
	if want := h.wanted(addr); len(want) > 0 {
		if h.sources != nil {
			return h.sources[want[0].Line-1]
		}
		return want[0].Filename
	}
	return h.own
}

// first decides about a host without a known key.
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
	if err := h.store(addr, key); err != nil {
		h.say("warning: the host key could not be kept, so it is a first use next time too: " + err.Error())
		return nil
	}
	h.say("the host key of " + addr + " is kept in " + h.own)
	return nil
}

// store makes keys the known ones of an address, instead of those that this program stored
// before.
func (h *hostKeys) store(addr string, keys ...ssh.PublicKey) error {
	return withLock(filepath.Dir(h.own), func() error {
		old, err := os.ReadFile(h.own)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
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
		return writePrivate(h.own, text.Bytes())
	})
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

// Pin stores the host keys of the server, as its base URL tells them. Keys that this program
// stored before are replaced only with replace, which says that they came from the same base
// URL: any site can name any SSH address as its own. A different key in the person's own
// known_hosts still fails the check: only a person can tell which one is right.
func (d *Dialer) Pin(keys []ssh.PublicKey, replace bool) error {
	addr, err := d.Addr()
	if err != nil {
		return err
	}
	h := d.hostKeys()
	before, err := h.stored(addr)
	if err != nil || replace || len(before) == 0 {
		return errors.Join(err, h.store(addr, keys...))
	}
	isStored := func(key ssh.PublicKey) bool {
		return slices.ContainsFunc(before, func(b ssh.PublicKey) bool { return bytes.Equal(b.Marshal(), key.Marshal()) })
	}
	if slices.ContainsFunc(keys, isStored) {
		return nil
	}
	return cli.Errorf(cli.ExitRefused, "the known host key of %s is %s, but the base URL tells another", addr, ssh.FingerprintSHA256(before[0])).
		WithHint("if the relay was set up anew, remove the old line: ssh-keygen -R '%s' -f %s", knownhosts.Normalize(addr), h.own)
}
