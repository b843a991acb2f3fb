package client

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"relay/cli"
	"relay/record"
)

// Prompter asks the user at the terminal.
type Prompter interface {
	// Confirm asks a yes-or-no question, which may have several lines.
	Confirm(question string) bool
	// Passphrase asks for the passphrase of a key file.
	Passphrase(file string) ([]byte, error)
}

// keyring provides the keys to log in with. It keeps opened keys in memory, so each passphrase is asked for
// once.
type keyring struct {
	identity     string   // --identity: this key and no other
	agent        string   // socket of the ssh-agent, or ""
	files        []string // key files that are tried after the agent; missing ones are skipped
	onlyFiles    bool     // use only those keys of the agent that are among files
	addKeys      string   // AddKeysToAgent: "", no, yes, ask, confirm, or a time; applies to keys opened with a passphrase
	prompter     Prompter
	say          func(string)
	agentTimeout time.Duration // time for the agent to list its keys; 0 = the constant agentTimeout

	opened map[string]ssh.Signer
	locked error           // why a key that the server wanted was not opened
	warned map[string]bool // the warnings that were shown
}

// warn shows a warning the first time only, and not at each reconnect.
func (k *keyring) warn(text string) {
	if k.warned[text] {
		return
	}
	if k.warned == nil {
		k.warned = map[string]bool{}
	}
	k.warned[text] = true
	k.say("warning: " + text)
}

// signers lists the keys. Call done when they are no longer used.
func (k *keyring) signers() (list []ssh.Signer, done func(), err error) {
	done = func() {}
	if k.identity != "" {
		signer, err := k.open(k.identity)
		if err != nil {
			failed := &cli.Error{Exit: cli.ExitUsage, Text: "cannot use the key " + k.identity, Cause: err}
			if private, ok := strings.CutSuffix(k.identity, ".pub"); ok {
				failed = failed.WithHint("that is the public half; name the private one: %s", private)
			}
			return nil, done, failed
		}
		return []ssh.Signer{signer}, done, nil
	}
	held, done := k.agentKeys()
	var own []ssh.Signer
	for _, file := range k.files { // the agent's keys that are among files come first, because a server allows few tries
		public, signer, err := k.openHalf(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		is := func(s ssh.Signer) bool {
			return public != nil && bytes.Equal(s.PublicKey().Marshal(), public.Marshal())
		}
		switch at := slices.IndexFunc(held, is); {
		case at >= 0:
			list, held = append(list, held[at]), slices.Delete(held, at, at+1)
		case err != nil:
			k.warn("the key " + file + " is not used: " + err.Error())
		case signer != nil && !slices.ContainsFunc(list, is) && !slices.ContainsFunc(own, is):
			own = append(own, signer)
		}
	}
	if !k.onlyFiles {
		list = append(list, held...)
	}
	list = append(list, own...)
	if len(list) == 0 {
		done()
		return nil, func() {}, cli.Errorf(cli.ExitRefused, "there is no SSH key to log in with").
			WithHint("relay login URL makes one and has it approved; or pass --identity FILE")
	}
	return list, done, nil
}

// NoKey reports whether there is no key to log in with: no configured key, none in the ssh-agent, and no key
// files.
func (d *Dialer) NoKey() bool {
	d.once.Do(d.prepare)
	if d.Identity != "" {
		return false
	}
	quiet := *d.keys
	quiet.say, quiet.warned = func(string) {}, nil
	_, done, err := quiet.signers()
	done()
	return err != nil
}

// FirstKey returns the public half of the key that is offered first.
func (d *Dialer) FirstKey() (ssh.PublicKey, error) {
	d.once.Do(d.prepare)
	d.keys.prompter = d.Prompter
	list, done, err := d.keys.signers()
	if err != nil {
		return nil, err
	}
	defer done()
	return list[0].PublicKey(), nil
}

// MakeKey writes a new ed25519 key pair without a passphrase, in the format of
// ssh-keygen, and returns its public half. An existing key is returned unchanged.
func MakeKey(file, comment string) (key ssh.PublicKey, err error) {
	err = withLock(filepath.Dir(file), func() error {
		text, err := os.ReadFile(file)
		if !errors.Is(err, os.ErrNotExist) {
			var signer ssh.Signer
			if err == nil {
				signer, err = ssh.ParsePrivateKey(text)
			}
			if err != nil { // an unreadable file is not replaced
				return &cli.Error{Exit: cli.ExitFailure, Text: "cannot use the key " + file, Cause: err}
			}
			key = signer.PublicKey()
			return nil
		}
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		block, err := ssh.MarshalPrivateKey(private, comment)
		if err != nil {
			return err
		}
		if key, err = ssh.NewPublicKey(public); err != nil {
			return err
		}
		if err := writePrivate(file, pem.EncodeToMemory(block)); err != nil {
			return err
		}
		return writePrivate(file+".pub", append(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)), " "+comment+"\n"...))
	})
	if _, own := errors.AsType[*cli.Error](err); err != nil && !own {
		err = &cli.Error{Exit: cli.ExitFailure, Text: "cannot make a key", Cause: err}
	}
	return key, err
}

// agentTimeout bounds the time in which an ssh-agent lists its keys.
const agentTimeout = 5 * time.Second

func (k *keyring) agentKeys() ([]ssh.Signer, func()) {
	none := func() {}
	if k.agent == "" {
		return nil, none
	}
	within := cmp.Or(k.agentTimeout, agentTimeout)
	conn, err := net.DialTimeout("unix", k.agent, within)
	if err != nil {
		k.warn("the ssh-agent is not used: " + err.Error())
		return nil, none
	}
	_ = conn.SetDeadline(time.Now().Add(within))
	list, err := agent.NewClient(conn).Signers()
	_ = conn.SetDeadline(time.Time{}) // no limit: the agent may prompt before it signs
	if err != nil {
		conn.Close()
		k.warn("the ssh-agent is not used: " + err.Error())
		return nil, none
	}
	return list, func() { conn.Close() }
}

// open reads a key file. For an encrypted key it returns a signer that asks for the passphrase when the
// server has accepted the public half.
func (k *keyring) open(file string) (ssh.Signer, error) {
	if s, ok := k.opened[file]; ok {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = record.DecodeText(text)
	signer, err := ssh.ParsePrivateKey(text)
	if locked, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		signer, err = k.lockedKey(file, text, locked.PublicKey)
	}
	if err != nil {
		return nil, err
	}
	if k.opened == nil {
		k.opened = map[string]ssh.Signer{}
	}
	k.opened[file] = signer
	return signer, nil
}

// openHalf returns the public half of a key file, and the signer if the file has the private half. If the
// file has only a public half, the agent may hold the private half. The error says why the file cannot be
// used; the public half may be set all the same.
func (k *keyring) openHalf(file string) (ssh.PublicKey, ssh.Signer, error) {
	signer, err := k.open(file)
	if err == nil {
		return signer.PublicKey(), signer, nil
	}
	for _, name := range []string{file, file + ".pub"} {
		text, readErr := os.ReadFile(name)
		if readErr != nil {
			continue
		}
		if public, _, _, _, parseErr := ssh.ParseAuthorizedKey(record.DecodeText(text)); parseErr == nil {
			if name == file || errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return public, nil, err
		}
	}
	return nil, nil, err
}

func (k *keyring) lockedKey(file string, text []byte, public ssh.PublicKey) (ssh.Signer, error) {
	if k.prompter == nil {
		return nil, errors.New("it is encrypted and there is no terminal to ask for its passphrase; add it to an ssh-agent")
	}
	if public == nil { // the file has an old format, which encrypts the public half, too
		line, err := os.ReadFile(file + ".pub")
		if err != nil {
			return nil, err
		}
		if public, _, _, _, err = ssh.ParseAuthorizedKey(record.DecodeText(line)); err != nil {
			return nil, err
		}
	}
	return &lockedSigner{ring: k, file: file, text: text, public: public}, nil
}

// lockedSigner is an encrypted key. Its first signature asks for the passphrase.
type lockedSigner struct {
	ring   *keyring
	file   string
	text   []byte
	public ssh.PublicKey
	opened ssh.AlgorithmSigner
}

func (l *lockedSigner) PublicKey() ssh.PublicKey { return l.public }

func (l *lockedSigner) Sign(random io.Reader, data []byte) (*ssh.Signature, error) {
	return l.SignWithAlgorithm(random, data, "")
}

// SignWithAlgorithm asks for the passphrase, three times at most. After a failure the SSH library continues
// with the next key, so the reason is also stored in the keyring.
func (l *lockedSigner) SignWithAlgorithm(random io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	if l.opened == nil {
		l.ring.locked = l.open()
	}
	if l.opened == nil {
		return nil, l.ring.locked
	}
	if random == nil {
		random = rand.Reader
	}
	return l.opened.SignWithAlgorithm(random, data, algorithm)
}

// open asks for the passphrase, until the key opens or the tries are used up.
func (l *lockedSigner) open() error {
	wrong := cli.Errorf(cli.ExitRefused, "that is not the passphrase of the key %s", l.file)
	for try := range 3 {
		if l.ring.prompter == nil {
			return cli.Errorf(cli.ExitRefused, "the key %s is encrypted and there is no terminal to ask for its passphrase", l.file)
		}
		if try > 0 {
			l.ring.say(wrong.Text)
		}
		pass, err := l.ring.prompter.Passphrase(l.file)
		if err != nil {
			return cli.Errorf(cli.ExitRefused, "no passphrase for the key %s", l.file)
		}
		raw, err := ssh.ParseRawPrivateKeyWithPassphrase(l.text, pass)
		if err != nil {
			continue
		}
		signer, err := ssh.NewSignerFromKey(raw)
		if err != nil {
			continue
		}
		if l.opened, _ = signer.(ssh.AlgorithmSigner); l.opened != nil {
			l.ring.addToAgent(raw, l.file)
			return nil
		}
	}
	return wrong
}

// addToAgent adds a key that was opened with a passphrase to the agent, if AddKeysToAgent in
// ~/.ssh/config asks for it: yes, ask, confirm, a time, or confirm and a time (ssh_config(5)).
func (k *keyring) addToAgent(raw any, file string) {
	key := agent.AddedKey{PrivateKey: raw, Comment: file}
	words := strings.Fields(k.addKeys)
	switch {
	case k.agent == "" || len(words) == 0 || words[0] == "no":
		return
	case words[0] == "ask":
		if k.prompter == nil || !k.prompter.Confirm("add the key "+file+" to the ssh-agent?") {
			return
		}
	case words[0] == "confirm":
		key.ConfirmBeforeUse = true
	}
	if last := words[len(words)-1]; last != "yes" && last != "ask" && last != "confirm" {
		lifetime, err := sshTime(last)
		if err != nil {
			k.warn("AddKeysToAgent of ~/.ssh/config is not used: " + err.Error())
			return
		}
		key.LifetimeSecs = uint32(lifetime / time.Second)
	}
	conn, err := net.DialTimeout("unix", k.agent, cmp.Or(k.agentTimeout, agentTimeout))
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(cmp.Or(k.agentTimeout, agentTimeout)))
		err = agent.NewClient(conn).Add(key)
		conn.Close()
	}
	if err != nil {
		k.warn("the key " + file + " was not added to the ssh-agent: " + err.Error())
	}
}

// sshTime reads a time of ssh_config(5): seconds, or numbers with units such as 1h30m or 2d.
func sshTime(text string) (time.Duration, error) {
	total, number, digits := time.Duration(0), time.Duration(0), 0
	units := map[rune]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	for _, r := range strings.ToLower(text) {
		unit, isUnit := units[r]
		switch {
		case r >= '0' && r <= '9' && digits < 9:
			number, digits = number*10+time.Duration(r-'0'), digits+1
		case isUnit && digits > 0:
			total, number, digits = total+number*unit, 0, 0
		default:
			return 0, errors.New(text + " is not a time")
		}
	}
	return total + number*time.Second, nil
}
