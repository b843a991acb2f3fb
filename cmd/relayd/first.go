package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate"
)

// summary is the text that a start prints on stdout. Commands stand at the start of a line, because users
// copy them.
type summary struct {
	Store, HTTP, SSH, HostKey string
	Admin                     string // "" = no account
	NoAdmin                   bool   // there are accounts, but no admin
	Fingerprints              []string
	KeyFile                   string // private key that relayd made; "" = the user has a key
	LoginLink                 string // one-time link; only at the first start
	Commands                  string // commands to try; each is complete and works as printed
}

func (s *summary) String() string {
	var b strings.Builder
	row := func(name, text string) { fmt.Fprintf(&b, "  %-10s %s\n", name, text) }
	row("store", s.Store)
	if s.NoAdmin {
		row("admin", noAdminLeft)
	} else if s.Admin != "" {
		row("admin", s.Admin)
	}
	for _, f := range s.Fingerprints {
		row("key", f)
	}
	if s.KeyFile != "" {
		row("", "made for you: "+s.KeyFile)
	}
	if s.LoginLink != "" {
		row("dashboard", s.LoginLink+"  (one use, 15 minutes)")
	} else {
		row("dashboard", s.HTTP)
	}
	row("ssh", s.SSH+"  host key "+s.HostKey)
	return b.String() + s.Commands
}

// firstStart creates the first admin if there is none, and returns the summary for stdout. If a listener is
// not on loopback, or other accounts exist, it creates an admin only from RELAY_INITIAL_ADMIN_KEYS. It runs
// before /readyz answers 200, because a client that waits for /readyz expects the account.
func (a *app) firstStart(ctx context.Context, list []*setting) (*summary, error) {
	out := &summary{
		Store: a.store.Describe(), HTTP: a.site.URL("/"), SSH: a.site.SSHAddr,
		HostKey: ssh.FingerprintSHA256(a.hostKeys[0].PublicKey()),
	}
	env := newOperatorEnv(a, list)
	if err := a.findAdmin(ctx, out, env); err != nil {
		return nil, err
	}
	if out.Admin == "" {
		a.log.Warn("there is no account yet; make the first one with the command, or set RELAY_INITIAL_ADMIN_KEYS and start again",
			"command", env.operatorCommand("user", "add", initialAdmin, "--admin", "--key", "FILE.pub"))
	} else {
		identity, err := patiently(ctx, func() (string, error) { return env.identity(ctx, a.store, out.Admin) })
		if err != nil {
			return nil, fmt.Errorf("read the keys of %s: %w", out.Admin, err)
		}
		out.Commands = env.commands(a.site, out.Admin, identity)
	}
	a.startedAt = time.Now()
	a.started.Store(true)
	return out, nil
}

// startTries bounds the time for which patiently tries.
const startTries = 30 * time.Second

// patiently calls the function step of a start again while the store is unavailable, so that the start does not end
// because of one late answer of the database. It does not call a step again that may have been done.
func patiently[T any](ctx context.Context, step func() (T, error)) (T, error) {
	for began := time.Now(); ; {
		value, err := step()
		var e *relay.Error
		if !errors.As(err, &e) || e.Code != relay.CodeStoreUnavailable || e.Unknown || time.Since(began) > startTries {
			return value, err
		}
		select {
		case <-ctx.Done():
			return value, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// findAdmin sets the admin of a summary. It creates an admin if there is none.
func (a *app) findAdmin(ctx context.Context, out *summary, env *operatorEnv) error {
	accounts, err := patiently(ctx, func() ([]relay.Account, error) { return a.store.Accounts(ctx, relay.System()) })
	if err == nil && a.needsAdmin(accounts) {
		// Several nodes may start on one empty database; the lock lets one of them create the account.
		unlock, lockErr := patiently(ctx, func() (func(), error) { return a.store.LockShared(ctx, "first-account") })
		if lockErr != nil {
			return fmt.Errorf("wait for the node that makes the first account: %w", lockErr)
		}
		defer unlock()
		accounts, err = patiently(ctx, func() ([]relay.Account, error) { return a.store.Accounts(ctx, relay.System()) })
	}
	if err != nil {
		return fmt.Errorf("read the accounts: %w", err)
	}
	if a.needsAdmin(accounts) {
		return a.createFirstAccount(ctx, out, env)
	}
	out.NoAdmin = !anyAdmin(accounts)
	out.Admin = cmp.Or(likelyAdmin(accounts, env.account()), accounts[0].Name)
	return nil
}

// needsAdmin reports whether an admin must be created. Without --initial-admin-keys, that is so if there is no
// account at all; with it, if there is neither an admin nor an account named admin.
func (a *app) needsAdmin(accounts []relay.Account) bool {
	if a.cfg.InitialAdminKeys == "" || len(accounts) == 0 {
		return len(accounts) == 0
	}
	return !slices.ContainsFunc(accounts, func(acc relay.Account) bool { return acc.Admin || acc.Name == initialAdmin })
}

// noAdminLeft is the message for a store with accounts but without an admin.
const noAdminLeft = "no admin is left; make one with `relayd user add NAME --admin`"

// initialAdmin is the name of the account for --initial-admin-keys.
const initialAdmin = "admin"

// createFirstAccount creates the first account with the keys of --initial-admin-keys, or, on loopback, with
// the keys of the user that runs relayd. Without keys it creates no account.
func (a *app) createFirstAccount(ctx context.Context, out *summary, env *operatorEnv) error {
	keys, err := initialAdminKeys(a.cfg.InitialAdminKeys)
	name := initialAdmin
	if err == nil && keys == nil && a.site.Loopback && !env.isService() {
		name = env.account()
		keys, out.KeyFile, err = env.ownKeys()
	}
	if err != nil || keys == nil {
		return err
	}
	if err := requireNewKeys(ctx, a.store, keys); err != nil {
		return fmt.Errorf("make the first account: %w", err)
	}
	ctx = context.WithoutCancel(ctx) // a stop must not leave an account without its keys, because the next start adds none
	if _, err := a.store.CreateAccount(ctx, relay.System(), name, true); err != nil {
		return fmt.Errorf("make the first account: %w", err)
	}
	for _, k := range keys {
		if _, err := a.store.AddKey(ctx, relay.System(), name, k.name, k.line); err != nil {
			return fmt.Errorf("make the first account: add key %s: %w", k.fingerprint, err)
		}
		out.Fingerprints = append(out.Fingerprints, strings.TrimSpace(k.fingerprint+" "+k.name))
	}
	a.log.Info("first account created", "account", name, "keys", len(keys))
	out.Admin = name
	if !a.site.Loopback {
		return nil // other users may read the log, so the log gets no login link
	}
	secret, err := a.store.CreateLoginLink(ctx, relay.System(), name, loginLinkTTL)
	if err != nil {
		return fmt.Errorf("make a login link: %w", err)
	}
	out.LoginLink = a.site.URL("/login/"+secret) + "?alias=" + exampleAlias // the page of the alias that the printed commands use
	return nil
}

// likelyAdmin returns the account named after the user that runs relayd, else the first admin.
func likelyAdmin(accounts []relay.Account, person string) string {
	first := ""
	for _, acc := range accounts {
		if acc.Name == person {
			return acc.Name
		}
		if acc.Admin {
			first = cmp.Or(first, acc.Name)
		}
	}
	return first
}

func anyAdmin(accounts []relay.Account) bool {
	return slices.ContainsFunc(accounts, func(a relay.Account) bool { return a.Admin })
}

// operatorEnv is the environment of the user that runs relayd: home directory, keys, and the command
// that runs this program again.
type operatorEnv struct {
	getenv  func(string) string
	dataDir string
	options []string // options that operator commands need to find the same store
}

func newOperatorEnv(a *app, list []*setting) *operatorEnv {
	s := &operatorEnv{getenv: a.program.getenv, dataDir: a.cfg.DataDir}
	if s.dataDir != defaultDataDir(s.getenv) {
		s.options = append(s.options, "--data-dir", s.dataDir)
	}
	for _, set := range list {
		line := strings.LastIndexByte(set.origin, ':')
		switch {
		case set.name != "database-url":
		case set.origin == "--database-url": // if the URL comes from the environment, commands read it there themselves
			s.options = append(s.options, set.origin, maskURL(a.cfg.DatabaseURL))
		case line >= 0:
			if file, err := filepath.Abs(set.origin[:line]); err == nil {
				s.options = append(s.options, "--config", file)
			}
		}
	}
	return s
}

// isService reports whether relayd runs as a system user whose home is the data dir, as the packages set it
// up. relayd makes no account for such a user: nobody could log in with a key in that home, and a later start
// with --initial-admin-keys would find an admin and create none.
func (s *operatorEnv) isService() bool {
	u, err := user.Current()
	return err == nil && u.HomeDir == s.dataDir
}

// account returns an account name for the user that runs relayd, or admin if the user name is not
// valid.
func (s *operatorEnv) account() string {
	name := s.getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if i := strings.LastIndexByte(name, '\\'); i >= 0 {
		name = name[i+1:] // DOMAIN\name
	}
	return accountName(name)
}

// accountName makes a valid account name from the name of a system user.
func accountName(name string) string {
	valid := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return cmp.Or(strings.Trim(valid[:min(len(valid), 63)], "._-"), "admin")
}

// ownKeys returns the public keys in ~/.ssh. If there are none, it creates a key pair in the
// data dir and returns its public key and the file of the private key.
func (s *operatorEnv) ownKeys() (keys []publicKey, keyFile string, err error) {
	for _, file := range s.publicKeyFiles() {
		found, err := readKeyFile(file)
		if err != nil {
			continue // the file holds no plain public key, but for example a certificate
		}
		keys = appendNew(keys, found...)
	}
	if len(keys) > 0 {
		return keys, "", nil
	}
	keyFile = s.generatedKey()
	if _, err := os.Stat(keyFile + ".pub"); errors.Is(err, fs.ErrNotExist) {
		if err := generateKey(keyFile); err != nil {
			return nil, "", fmt.Errorf("make a key pair: %w", err)
		}
	}
	keys, err = readKeyFile(keyFile + ".pub")
	return keys, keyFile, err
}

func (s *operatorEnv) publicKeyFiles() []string {
	if s.getenv("HOME") == "" {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(s.getenv("HOME"), ".ssh", "*.pub"))
	return files
}

func (s *operatorEnv) generatedKey() string { return filepath.Join(s.dataDir, "id_ed25519") }

// generateKey writes an ed25519 key pair in the format of OpenSSH. Only the owner may read
// the private key, as ssh requires.
func generateKey(file string) error {
	text, err := sshgate.NewHostKey()
	if err != nil {
		return err
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + " relay\n"
	return os.WriteFile(file+".pub", []byte(line), 0o644)
}
