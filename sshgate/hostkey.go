package sshgate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/ssh"
)

// HostKeyFile is the name of the host key in the data dir, and of the key that all nodes share in the store.
const HostKeyFile = "ssh_host_ed25519_key"

// LoadHostKey reads the host key from dir. If there is none, it creates one (ed25519, mode 0600). An
// unreadable key is an error, because a new key would look like an attack to clients that know the old one.
func LoadHostKey(dir string) (ssh.Signer, error) {
	path := filepath.Join(dir, HostKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeHostKey(path); err != nil {
			return nil, err
		}
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read host key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read host key %s: %w; restore it from a backup, or remove it to have a new one made", path, err)
	}
	return key, nil
}

// NewHostKey makes an ed25519 host key, in the format of OpenSSH.
func NewHostKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "relayd")
	if err != nil {
		return nil, fmt.Errorf("make host key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// makeHostKey writes the complete key to a file with another name and links it to its place, because a crash
// or a second process must not leave an incomplete key.
func makeHostKey(path string) error {
	text, err := NewHostKey()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), HostKeyFile+".*") // CreateTemp uses mode 0600
	if err != nil {
		return fmt.Errorf("write host key: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write host key: %w", err)
	}
	if err = os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write host key: %w", err)
	}
	return nil
}

// These are names of OpenSSH's extension for further host keys of a server that a client already trusts
// (OpenSSH's file PROTOCOL, section 2.5).
const (
	hostKeys      = "hostkeys-00@openssh.com"
	hostKeysProve = "hostkeys-prove-00@openssh.com"
)

// maxProofs is the largest number of keys in one request for proofs.
const maxProofs = 8

// announceHostKeys sends all host keys to the client. Clients that support it store new keys and forget old
// ones.
func (c *conn) announceHostKeys() {
	_, _, _ = c.SendRequest(c.Context(), hostKeys, false, c.srv.hostKeyList())
}

// hostKeyList returns all host keys in the encoding of the payloads of hostKeys and hostKeysProve.
func (srv *Server) hostKeyList() (payload []byte) {
	for _, key := range srv.o.HostKeys {
		payload = append(payload, ssh.Marshal(struct{ Key []byte }{key.PublicKey().Marshal()})...)
	}
	return payload
}

// proveHostKeys signs the id of the session with each key that the client names, which proves that the server has the
// private keys. If one key is unknown, it refuses the whole request.
func (srv *Server) proveHostKeys(session ssh.ConnMetadata, payload []byte) (ok bool, reply []byte) {
	for n := 0; len(payload) > 0; n++ {
		var next struct {
			Key  []byte
			Rest []byte `ssh:"rest"`
		}
		if n >= maxProofs || ssh.Unmarshal(payload, &next) != nil {
			return false, nil
		}
		payload = next.Rest
		at := slices.IndexFunc(srv.o.HostKeys, func(key ssh.Signer) bool { return bytes.Equal(key.PublicKey().Marshal(), next.Key) })
		if at < 0 {
			return false, nil
		}
		sig, err := signProof(srv.o.HostKeys[at], session, ssh.Marshal(struct {
			What    string
			Session []byte
			Key     []byte
		}{hostKeysProve, session.SessionID(), next.Key}))
		if err != nil {
			return false, nil
		}
		reply = append(reply, ssh.Marshal(struct{ Sig []byte }{ssh.Marshal(sig)})...)
	}
	return len(reply) > 0, reply
}

// signProof signs with a host key. For an RSA key x/crypto would use SHA-1, which OpenSSH refuses: OpenSSH
// expects the algorithm of the key exchange, or SHA-2 if the key exchange used another type of key.
func signProof(key ssh.Signer, session ssh.ConnMetadata, data []byte) (*ssh.Signature, error) {
	withAlgorithm, ok := key.(ssh.AlgorithmSigner)
	if !ok || key.PublicKey().Type() != ssh.KeyAlgoRSA {
		return key.Sign(rand.Reader, data)
	}
	algorithm := ssh.KeyAlgoRSASHA512
	if c, ok := session.(ssh.AlgorithmsConnMetadata); ok && c.Algorithms().HostKey == ssh.KeyAlgoRSASHA256 {
		algorithm = ssh.KeyAlgoRSASHA256
	}
	return withAlgorithm.SignWithAlgorithm(rand.Reader, data, algorithm)
}
