package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"relay/store"
)

// checkNextKey is about the host key that is announced beforehand, where there is one:
// a bad one keeps the server from starting.
func checkNextKey(cfg Config) []store.Finding {
	const check = "next host key"
	file := filepath.Join(string(cfg.DataDir), hostKeyFile+".next")
	anew := "make it anew: rm " + quote(file) + " && ssh-keygen -t ed25519 -N '' -f " + quote(file) + "; or remove it"
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []store.Finding{finding(check, store.VerdictFail, "make it readable for the user that runs relayd", "%v", err)}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return []store.Finding{finding(check, store.VerdictFail, "chmod 600 "+quote(file)+", or better make another one", "others may read %s (mode %04o)", file, info.Mode().Perm())}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return []store.Finding{finding(check, store.VerdictFail, "make it readable for the user that runs relayd", "%v", err)}
	}
	key, err := ssh.ParsePrivateKey(text)
	switch {
	case err != nil:
		return []store.Finding{finding(check, store.VerdictFail, anew, "%s: %v; relayd will not start", file, err)}
	case key.PublicKey().Type() != ssh.KeyAlgoED25519:
		return []store.Finding{finding(check, store.VerdictFail, anew, "%s is of type %s; relayd will not start", file, key.PublicKey().Type())}
	case sameAsCurrent(cfg, key):
		return []store.Finding{finding(check, store.VerdictWarn, anew, "it is the key that is in use, so clients learn nothing new")}
	}
	return []store.Finding{passed(check, "%s, announced to clients from the next start on", ssh.FingerprintSHA256(key.PublicKey()))}
}

// sameAsCurrent tells whether a key is the one in use; what is wrong with that one is
// another check's to say.
func sameAsCurrent(cfg Config, key ssh.Signer) bool {
	text, err := os.ReadFile(filepath.Join(string(cfg.DataDir), hostKeyFile))
	if err != nil {
		return false
	}
	current, err := ssh.ParsePrivateKey(text)
	return err == nil && bytes.Equal(current.PublicKey().Marshal(), key.PublicKey().Marshal())
}
