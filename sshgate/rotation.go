package sshgate

import (
	"bytes"
	"crypto/rand"

	"golang.org/x/crypto/ssh"
)

// OpenSSH's extension by which clients learn host keys from a server that they
// trust already (its file PROTOCOL, section 2.5).
const (
	hostKeys      = "hostkeys-00@openssh.com"
	hostKeysProve = "hostkeys-prove-00@openssh.com"
)

// maxProofs is how many keys a client may want proven at once.
const maxProofs = 8

// announceHostKeys tells the client all host keys. One that keeps them learns the
// next one, and forgets what is not among them any more.
func (c *conn) announceHostKeys() {
	var payload []byte
	for _, key := range c.srv.o.HostKeys {
		payload = append(payload, ssh.Marshal(struct{ Key []byte }{key.PublicKey().Marshal()})...)
	}
	_, _, _ = c.sc.SendRequest(hostKeys, false, payload)
}

// proveHostKeys signs the session with each key that the client names, to show that
// it is ours. A key that is not makes the whole answer a refusal.
func (srv *Server) proveHostKeys(session, payload []byte) (ok bool, reply []byte) {
	for n := 0; len(payload) > 0; n++ {
		var next struct {
			Key  []byte
			Rest []byte `ssh:"rest"`
		}
		if n >= maxProofs || ssh.Unmarshal(payload, &next) != nil {
			return false, nil
		}
		payload = next.Rest
		signer := srv.signerOf(next.Key)
		if signer == nil {
			return false, nil
		}
		sig, err := signer.Sign(rand.Reader, ssh.Marshal(struct {
			What    string
			Session []byte
			Key     []byte
		}{hostKeysProve, session, next.Key}))
		if err != nil {
			return false, nil
		}
		reply = append(reply, ssh.Marshal(struct{ Sig []byte }{ssh.Marshal(sig)})...)
	}
	return len(reply) > 0, reply
}

func (srv *Server) signerOf(blob []byte) ssh.Signer {
	for _, key := range srv.o.HostKeys {
		if bytes.Equal(key.PublicKey().Marshal(), blob) {
			return key
		}
	}
	return nil
}
