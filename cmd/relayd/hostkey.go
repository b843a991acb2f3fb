package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/sshgate"
	"relay/store"
)

// loadHostKeys returns the SSH host keys: those of --ssh-host-key, else the key in the data dir, or on
// Postgres the key that all nodes share. If there is no key, it creates one.
func loadHostKeys(ctx context.Context, cfg Config, s *store.Store, log *slog.Logger) (keys []ssh.Signer, err error) {
	if files := hostKeyFiles(cfg); len(files) > 0 {
		for _, file := range files {
			key, err := readHostKey(file)
			if err != nil {
				return nil, fmt.Errorf("--ssh-host-key: %w", err)
			}
			keys = append(keys, key)
		}
		return keys, nil
	}
	dir := cfg.DataDir
	var key ssh.Signer
	if cfg.DatabaseURL == "" {
		key, err = sshgate.LoadHostKey(dir)
	} else {
		key, err = sharedHostKey(ctx, dir, s, log)
	}
	return []ssh.Signer{key}, err
}

// hostKeyFiles lists the files of --ssh-host-key. File names may contain spaces.
func hostKeyFiles(cfg Config) []string {
	files := mapSlice(strings.FieldsFunc(cfg.SSHHostKey, func(r rune) bool { return r == ',' || r == '\n' }), strings.TrimSpace)
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

func readHostKey(file string) (ssh.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(record.DecodeText(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name a private key without a passphrase", file, err)
	}
	return key, nil
}

// sharedHostKey returns the host key in the database. The first node stores the key: its own key, which
// clients may know from an earlier version, or a new key.
func sharedHostKey(ctx context.Context, dir string, s *store.Store, log *slog.Logger) (ssh.Signer, error) {
	file := filepath.Join(dir, sshgate.HostKeyFile)
	own, err := readHostKey(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read host key: %w; restore it from a backup, or remove it", err)
	}
	shared, _, err := s.SharedFile(ctx, sshgate.HostKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		var text []byte
		if own != nil {
			text, err = os.ReadFile(file)
		} else {
			text, err = sshgate.NewHostKey()
		}
		if err == nil {
			shared, err = s.AddSharedFile(ctx, sshgate.HostKeyFile, text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the host key of all nodes: %w", err)
	}
	key, err := ssh.ParsePrivateKey(shared)
	if err != nil {
		return nil, fmt.Errorf("read the host key of all nodes from the database: %w; set --ssh-host-key to the key file", err)
	}
	if own != nil && !bytes.Equal(own.PublicKey().Marshal(), key.PublicKey().Marshal()) {
		log.Warn("the host key of the data dir is not used: all nodes have the one in the database; set --ssh-host-key on each of them to choose another",
			"file", file, "fingerprint", ssh.FingerprintSHA256(own.PublicKey()), "used", ssh.FingerprintSHA256(key.PublicKey()))
	}
	return key, nil
}

// hostKeys lists the public host keys, for clients that pin them.
func hostKeys(signers []ssh.Signer) []relay.HostKey {
	return mapSlice(signers, func(s ssh.Signer) relay.HostKey {
		k := s.PublicKey()
		return relay.HostKey{Type: k.Type(), Key: base64.StdEncoding.EncodeToString(k.Marshal()), Fingerprint: ssh.FingerprintSHA256(k)}
	})
}
