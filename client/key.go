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

	"relay"
	"relay/cli"
)

// Prompter asks the person at the terminal.
type Prompter interface {
	// Confirm asks a question that is answered by yes or no; the question may have
	// several lines.
	Confirm(question string) bool
	// Passphrase asks for the passphrase of a key file.
	Passphrase(file string) ([]byte, error)
}

// keyring provides the keys to log in with. Opened key files are kept, so that a
// passphrase is asked for once.
type keyring struct {
	identity     string   // --identity: this key and no other
	agent        string   // socket of the ssh-agent, or ""
	files        []string // key files that are tried after the agent; missing ones are skipped
	prompter     Prompter
	say          func(string)
	agentTimeout time.Duration // for the agent to list its keys; 0 = agentTimeout

	opened map[string]ssh.Signer
	locked error           // why a key that the server wanted could not be opened
	warned map[string]bool // the warnings that were said
}

// warn says a warning once, and not again at each reconnect.
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
	list, done = k.agentKeys()
	for _, file := range k.files {
		signer, err := k.open(file)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			k.warn("the key " + file + " is not used: " + err.Error())
		case !slices.ContainsFunc(list, func(s ssh.Signer) bool {
			return bytes.Equal(s.PublicKey().Marshal(), signer.PublicKey().Marshal())
		}):
			list = append(list, signer)
		}
	}
	if len(list) == 0 {
		done()
		return nil, func() {}, cli.Errorf(cli.ExitRefused, "there is no SSH key to log in with").
			WithHint("relay login URL makes one and has it approved; or pass --identity FILE")
	}
	return list, done, nil
}

// NoKey reports whether there is no key to log in with: none is named, the ssh-agent
// has none, and there are no key files.
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
			if err != nil { // it is not replaced
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

// agentTimeout is how long an ssh-agent may take to list its keys.
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
	_ = conn.SetDeadline(time.Time{}) // the agent may prompt before it signs
	if err != nil {
		conn.Close()
		k.warn("the ssh-agent is not used: " + err.Error())
		return nil, none
	}
	return list, func() { conn.Close() }
}

// open reads a key file; an encrypted one becomes a signer that asks for its
// passphrase once the server has accepted its public half.
func (k *keyring) open(file string) (ssh.Signer, error) {
	if s, ok := k.opened[file]; ok {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = relay.DecodeText(text)
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

func (k *keyring) lockedKey(file string, text []byte, public ssh.PublicKey) (ssh.Signer, error) {
	if k.prompter == nil {
		return nil, errors.New("it is encrypted and there is no terminal to ask for its passphrase; add it to an ssh-agent")
	}
	if public == nil { // an old format that hides its public half
		line, err := os.ReadFile(file + ".pub")
		if err != nil {
			return nil, err
		}
		if public, _, _, _, err = ssh.ParseAuthorizedKey(relay.DecodeText(line)); err != nil {
			return nil, err
		}
	}
	return &lockedSigner{ring: k, file: file, text: text, public: public}, nil
}

// lockedSigner is an encrypted key whose passphrase is asked for at its first
// signature.
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

// SignWithAlgorithm asks for the passphrase, three times at most. After a failure the
// SSH library continues with the next key, so the reason is kept in the keyring as
// well.
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

// open asks for the passphrase until it is right.
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
		signer, err := ssh.ParsePrivateKeyWithPassphrase(l.text, pass)
		if err != nil {
			continue
		}
		if l.opened, _ = signer.(ssh.AlgorithmSigner); l.opened != nil {
			return nil
		}
	}
	return wrong
}
