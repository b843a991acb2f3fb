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

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"relay/record"
)

// publicKey is one line of an authorized_keys text.
type publicKey struct {
	line        string // type and base64, nothing else
	name        string // the comment
	fingerprint string
}

// parseKeys reads an authorized_keys text; empty lines and comments are skipped.
// An error names source and line.
func parseKeys(source, text string) ([]publicKey, error) {
	var keys []publicKey
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
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
		keys = append(keys, publicKey{
			line: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), name: comment, fingerprint: ssh.FingerprintSHA256(key),
		})
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: holds no public key", source)
	}
	return keys, nil
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

func (c *cli) keyCommand() *cobra.Command {
	return group("key", "SSH public keys: add, list, rm", c.keyAdd(), c.keyList(), c.keyRemove())
}

func (c *cli) keyAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add --user NAME FILE", Short: "register the public keys of a file", Args: exactly("FILE"),
		Example: "  relayd key add --user alice ~/.ssh/id_ed25519.pub",
	}
	user := userFlag(cmd, "whose key it is")
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := requireFlag("user", *user); err != nil {
			return err
		}
		keys, err := readKeyFile(args[0])
		if err != nil {
			return err
		}
		return o.addKeys(ctx, *user, keys)
	})
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

// requireNew is an error where one of the keys is somebody's already.
func (o *operator) requireNew(ctx context.Context, keys []publicKey) error {
	if len(keys) == 0 {
		return nil
	}
	known, err := o.store.Keys(ctx, o.who, "")
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

func (c *cli) keyList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "list the keys", Args: exactly()}
	user := userFlag(cmd, "only those of one account")
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		keys, err := o.store.Keys(ctx, o.who, *user)
		if err != nil {
			return explainNotFound(err, noAccount, *user)
		}
		head := []string{"USER", "FINGERPRINT", "TYPE", "NAME", "LAST USED"}
		return printRows(o.stdout, *asJSON, head, mapSlice(keys, record.OfKey), func(k record.Key) []string {
			return []string{k.User, k.Fingerprint, k.Type, cmp.Or(k.Name, "-"), whenOr(k.LastUsedAt)}
		})
	})
}

func (c *cli) keyRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm FINGERPRINT", Short: "remove a key; connections that use it are cut", Args: exactly("FINGERPRINT"),
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := o.store.RemoveKey(ctx, o.who, args[0]); err != nil {
			return explainNotFound(err, noKey, args[0])
		}
		o.report("key %s removed", args[0])
		return nil
	})
}

func whenOr(t *record.Time) string {
	if t == nil {
		return "-"
	}
	return when(t.Time)
}

// initialAdminKeys reads the setting of that name: authorized_keys text, or the
// path of a file that holds it.
func initialAdminKeys(setting string) ([]publicKey, error) {
	if setting == "" {
		return nil, nil
	}
	keys, err := parseKeys("--initial-admin-keys", setting)
	if err == nil || strings.Contains(setting, "\n") {
		return keys, err
	}
	fromFile, ferr := readKeyFile(setting)
	if errors.Is(ferr, os.ErrNotExist) {
		if !strings.Contains(setting, " ") {
			return nil, fmt.Errorf("--initial-admin-keys: there is no file %s, and it is no public key such as `ssh-ed25519 AAAA… name` either", setting)
		}
		return nil, fmt.Errorf("%w, or the path of a file that holds one", err)
	}
	return fromFile, ferr
}
