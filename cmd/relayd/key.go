package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/store"
)

// publicKey is one line of an authorized_keys text.
type publicKey struct {
	line        string // type and base64 only
	name        string // comment of the line
	fingerprint string
}

// parseKeys reads an authorized_keys text. It skips empty lines, comments and repeated keys. An error
// names source and line.
func parseKeys(source, text string) ([]publicKey, error) {
	var keys []publicKey
	for i, line := range strings.Split(string(record.DecodeText([]byte(text))), "\n") {
		line = strings.TrimSpace(string(record.DecodeText([]byte(line)))) // the text may be joined from files in several encodings
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, comment, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: expected a public key such as `ssh-ed25519 AAAA… name`", source, i+1)
		}
		if _, cert := key.(*ssh.Certificate); cert || len(options) > 0 {
			return nil, fmt.Errorf("%s:%d: options and certificates are not supported; give the plain public key", source, i+1)
		}
		keys = appendNew(keys, publicKey{
			line: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), name: comment, fingerprint: ssh.FingerprintSHA256(key),
		})
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: holds no public key", source)
	}
	return keys, nil
}

// appendNew appends the keys that are not in the list yet.
func appendNew(list []publicKey, keys ...publicKey) []publicKey {
	for _, k := range keys {
		if !slices.ContainsFunc(list, func(o publicKey) bool { return o.fingerprint == k.fingerprint }) {
			list = append(list, k)
		}
	}
	return list
}

func readKeyFile(path string) ([]publicKey, error) {
	var content []byte
	var err error
	if path == "-" {
		content, err = io.ReadAll(os.Stdin)
	} else {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(content), "PRIVATE KEY") {
		return nil, fmt.Errorf("%s: this is a private key; give the public one, which usually is %s.pub", path, path)
	}
	keys, err := parseKeys(path, string(content))
	for i := range keys {
		keys[i].name = cmp.Or(keys[i].name, filepath.Base(path))
	}
	return keys, err
}

func (c *program) keyCommand() *cobra.Command {
	add := c.forUser(&cobra.Command{
		Use: "add --user NAME FILE", Short: "register the public keys of a file", Args: cli.Takes("FILE", 1, 1),
		Example: "  relayd key add --user alice ~/.ssh/id_ed25519.pub",
	}, "account of the key", func(ctx context.Context, o *operator, user string, args []string) error {
		keys, err := readKeyFile(args[0])
		if err != nil {
			return err
		}
		return o.addKeys(ctx, user, keys)
	})
	list := &cobra.Command{Use: "list", Short: "list the keys"}
	user := list.Flags().String("user", "", "list only those of one account")
	listing(c, list, "USER\tFINGERPRINT\tTYPE\tNAME\tLAST USED", func(ctx context.Context, o *operator) ([]relay.Key, error) {
		keys, err := o.store.Keys(ctx, o.who, *user)
		return keys, explainNotFound(err, noAccount, *user)
	}, record.OfKey, func(k record.Key) []string {
		return []string{k.User, k.Fingerprint, k.Type, cmp.Or(k.Name, "-"), whenOr(k.LastUsedAt)}
	})
	remove := c.changing(&cobra.Command{
		Use: "rm FINGERPRINT", Short: "remove a key and close the connections that use it", Args: cli.Takes("FINGERPRINT", 1, 1),
	}, "there is no key %s; `relayd key list` shows their fingerprints", "key %s removed",
		func(ctx context.Context, o *operator, name string) error { return o.store.RemoveKey(ctx, o.who, name) })
	return group("key", "SSH public keys: add, list, rm", add, list, remove)
}

// requireNewKeys returns an error if one of the keys belongs to an account. It is called before an account is
// made, because an account without its keys must not remain.
func requireNewKeys(ctx context.Context, s *store.Store, keys []publicKey) error {
	known, err := s.Keys(ctx, relay.System(), "")
	if err != nil {
		return err
	}
	for _, k := range known {
		if slices.ContainsFunc(keys, func(x publicKey) bool { return x.fingerprint == k.Fingerprint }) {
			return fmt.Errorf("key %s belongs to %s already", k.Fingerprint, k.AccountName)
		}
	}
	return nil
}

func (o *operator) addKeys(ctx context.Context, user string, keys []publicKey) error {
	for _, k := range keys {
		added, err := o.store.AddKey(ctx, o.who, user, k.name, k.line)
		if err != nil {
			return explainNotFound(err, noAccount, user)
		}
		o.report("key %s added to %s", added.Fingerprint, user)
	}
	return nil
}

// initialAdminKeys reads --initial-admin-keys: an authorized_keys text, or the path of a file with such a
// text.
func initialAdminKeys(setting string) ([]publicKey, error) {
	if setting == "" {
		return nil, nil
	}
	keys, err := parseKeys("--initial-admin-keys", setting)
	if err == nil || strings.Contains(setting, "\n") {
		return keys, err
	}
	fromFile, ferr := readKeyFile(setting)
	if errors.Is(ferr, os.ErrNotExist) || errors.Is(ferr, syscall.ENAMETOOLONG) { // a text with a long key is too long for a path
		if !strings.Contains(setting, " ") {
			return nil, fmt.Errorf("--initial-admin-keys: there is no file %s, and it is no public key such as `ssh-ed25519 AAAA… name` either", setting)
		}
		return nil, fmt.Errorf("%w, or the path of a file that holds one", err)
	}
	return fromFile, ferr
}
