package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/store"
	"relay/store/seal"
)

func (c *program) secretCommand() *cobra.Command {
	list := &cobra.Command{Use: "list ALIAS", Short: "list the secrets of an alias, without their values", Args: cli.Takes("ALIAS", 1, 1)}
	asJSON := jsonFlag(list)
	c.operate(list, func(ctx context.Context, o *operator, args []string) error {
		secrets, err := o.store.Secrets(ctx, o.who, args[0])
		if err != nil {
			return explainNotFound(err, noAlias, args[0])
		}
		return printRows(o.stdout, *asJSON, "ID\tPROVIDER\tPATH\tSIGN\tADDED\tBY\tLAST VALID", mapSlice(secrets, record.OfSecret), func(s record.SenderSecret) []string {
			path, sign := "all", off
			if s.Path != nil {
				path = *s.Path
			}
			if s.Sign {
				sign = "on"
			}
			return []string{s.ID, s.Provider, path, sign, when(s.CreatedAt.Time), s.CreatedBy, whenOr(s.LastValidAt)}
		})
	})
	remove := c.changing(&cobra.Command{Use: "rm ID", Short: "remove the secret of a sender", Args: cli.Takes("ID", 1, 1)},
		"there is no secret %s; `relayd secret list ALIAS` shows those of an alias", "secret %s removed",
		func(ctx context.Context, o *operator, id string) error {
			alias, err := o.store.SecretAlias(ctx, o.who, id)
			if err != nil {
				return err
			}
			return o.store.RemoveSecret(ctx, o.who, alias, id)
		})
	return group("secret", "secrets of senders: add, list, rm", c.secretAdd(), list, remove)
}

func (c *program) secretAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add ALIAS --provider NAME", Short: "add the secret of a sender, read from standard input", Args: cli.Takes("ALIAS", 1, 1),
		Example: "  relayd secret add stripe-dev --provider stripe < secret.txt",
	}
	var q cli.SecretFlags
	q.Add(cmd, true)
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := q.Check(); err != nil {
			return err
		}
		value, err := q.Value(&cli.Secrets{Getenv: c.getenv, ReadFile: os.ReadFile}, os.Stdin)
		if err != nil {
			return err
		}
		made, err := o.store.AddSecret(ctx, o.who, args[0], relay.SenderSecret{Provider: q.Provider, Custom: q.Custom, Path: q.Path, Sign: q.Sign}, relay.NewSecretText(value))
		if err != nil {
			return explainNotFound(err, noAlias, args[0])
		}
		out := record.OfSecret(made)
		o.report("keeps %s", cli.SecretLine(&out))
		if q.Generate {
			fmt.Fprintln(o.stdout, value)
		}
		return nil
	})
}

func (c *program) secretKeyCommand() *cobra.Command {
	newKey := &cobra.Command{
		Use: "new", Short: "print a new key for --secret-key; relayd does not store it", Args: cli.Takes("", 0, 0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(c.stdout, seal.NewKey().Text())
			return err
		},
	}
	status := &cobra.Command{Use: "status", Short: "list the keys that seal secrets, and how many each one seals", Args: cli.Takes("", 0, 0)}
	asJSON := jsonFlag(status)
	c.operate(status, func(ctx context.Context, o *operator, _ []string) error {
		rows, err := keyUses(ctx, o.store)
		if err != nil {
			return err
		}
		return printRows(o.stdout, *asJSON, "KEY\tHERE\tUSE\tSECRETS", rows, func(r keyUse) []string {
			return []string{r.ID, map[bool]string{true: "yes", false: "no"}[r.Here], r.Use, fmt.Sprint(r.Secrets)}
		})
	})
	rotate := c.operate(&cobra.Command{
		Use: "rotate", Short: "seal every secret again with the first key", Args: cli.Takes("", 0, 0),
		Long: `Encrypts every secret again with the first key. Without --secret-key, relayd first adds a new
key at the top of secret.key in the data dir and keeps the old ones. With --secret-key: give
every node the new key as its second line, restart the nodes, move it to the first line, restart
them again, and then rotate. Keep the old keys for as long as you keep backups.`,
	}, func(ctx context.Context, o *operator, _ []string) error {
		if err := o.rotateKey(ctx); err != nil {
			return err
		}
		sealed, left, err := o.store.ResealSecrets(ctx, o.who)
		if err != nil {
			return err
		}
		o.report("%s sealed with the first key", record.Count(sealed, "secret", "secrets"))
		if left > 0 {
			return fmt.Errorf("no key of these settings opens %s; `relayd secret-key status` names the keys", record.Count(left, "secret", "secrets"))
		}
		return nil
	})
	return group("secret-key", "keys that seal the secrets of senders: new, status, rotate", newKey, status, rotate)
}

// rotateKey adds a new first key to the key file of the data dir. Without a key file it returns an error: the
// file may be lost, or no secret may be stored yet.
func (o *operator) rotateKey(ctx context.Context) error {
	err := o.store.SecretKeys().Rotate()
	if !errors.Is(err, seal.ErrNoKey) {
		return err
	}
	used, useErr := o.store.SecretKeyUse(ctx)
	switch {
	case useErr != nil:
		return useErr
	case len(used) > 0:
		return fmt.Errorf("%s has no %s, and secrets are sealed with it: restore the file there, or pass --secret-key; `relayd secret-key status` names the key", o.cfg.DataDir, store.SecretKeyFile)
	}
	return fmt.Errorf("there is no key yet, and no secret to encrypt again: relayd makes %s with the first secret; several nodes need --secret-key: `relayd secret-key new` prints a key", store.SecretKeyFile)
}

// keyUse describes the use of one key.
type keyUse struct {
	ID      string `json:"id"`
	Here    bool   `json:"here"` // this node has the key
	Use     string `json:"use"`
	Secrets int    `json:"secrets"`
}

// keyUses lists the keys of the settings, and the missing keys with which stored secrets are sealed.
func keyUses(ctx context.Context, s *store.Store) ([]keyUse, error) {
	keys, err := s.SecretKeys().Keys()
	if err != nil {
		return nil, err
	}
	used, err := s.SecretKeyUse(ctx)
	if err != nil {
		return nil, err
	}
	var list []keyUse
	for i, k := range keys {
		use := "opens"
		if i == 0 {
			use = "seals and opens"
		}
		list = append(list, keyUse{k.ID(), true, use, used[k.ID()]})
		delete(used, k.ID())
	}
	for id, n := range used {
		list = append(list, keyUse{id, false, "missing", n})
	}
	slices.SortStableFunc(list, func(a, b keyUse) int {
		if a.Here || b.Here {
			return 0
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, nil
}

// checkSecretKeys reports secrets of senders that this node cannot open. Without keys and secrets it returns
// no finding.
func checkSecretKeys(ctx context.Context, s *store.Store, cfg Config) []relay.Finding {
	const check = "secret keys"
	list, err := keyUses(ctx, s)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []relay.Finding{finding(check, relay.VerdictFail, "make the file readable for the user that runs relayd, one key a line", "%s", userMessage(err))}
	}
	var missing []string
	lost, sealed := 0, 0
	for _, k := range list {
		if !k.Here {
			missing, lost = append(missing, k.ID), lost+k.Secrets
		}
		sealed += k.Secrets
	}
	fix := "add the key to --secret-key (RELAY_SECRET_KEY) of this node, or restore " + store.SecretKeyFile + " in its data dir, and restart it; if the key is lost, remove these secrets and add them again"
	switch {
	case lost > 0:
		return []relay.Finding{finding(check, relay.VerdictFail, fix, "%s has no key %s: it cannot open %s of senders, neither judge signatures by them nor sign",
			nodeLabel(cfg), joinMax(missing), record.Count(lost, "secret", "secrets"))}
	case len(list) == 0:
		return nil
	}
	return []relay.Finding{passed(check, "%s opens %s of senders with %s", nodeLabel(cfg), record.Count(sealed, "secret", "secrets"), record.Count(len(list), "key", "keys"))}
}

// nodeLabel returns a text that names this node in a finding.
func nodeLabel(cfg Config) string {
	host, _ := os.Hostname()
	return "node " + cmp.Or(cfg.NodeName, host, "unnamed")
}
