package main

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/sockets"
	"relay/store"
)

// exampleAlias is the alias in printed commands, and in the README.
const exampleAlias = "stripe-dev"

// defaultIdentities are the names of the private key files in ~/.ssh that ssh offers by default.
var defaultIdentities = []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_dsa"}

// identity returns the file of a private key of the account, for ssh -i. It returns "" if ssh offers that file
// by default, or if no such file is found; ssh may then find the key in its agent.
func (s *operatorEnv) identity(ctx context.Context, st *store.Store, account string) (string, error) {
	registered, err := st.Keys(ctx, relay.System(), account)
	if err != nil {
		return "", err
	}
	other := ""
	for _, pub := range append(s.publicKeyFiles(), s.generatedKey()+".pub") {
		keys, err := readKeyFile(pub)
		private := strings.TrimSuffix(pub, ".pub")
		if err != nil || !slices.ContainsFunc(registered, func(k relay.Key) bool { return k.Fingerprint == keys[0].fingerprint }) {
			continue
		}
		if _, err := os.Stat(private); err != nil {
			continue // the private half is in an agent or on a card
		}
		if private != s.generatedKey() && slices.Contains(defaultIdentities, filepath.Base(private)) {
			return "", nil
		}
		other = cmp.Or(other, private)
	}
	return other, nil
}

// commands returns command lines that can be pasted into a shell, each with a comment on its purpose.
func (s *operatorEnv) commands(site relay.Site, account, identity string) string {
	host, port, _ := net.SplitHostPort(site.SSHAddr)
	flags := ""
	if port != "22" {
		flags += "-p " + port + " "
	}
	if identity != "" {
		flags += "-i " + quote(identity) + " -o IdentitiesOnly=yes "
	}
	ssh := "ssh " + flags + host + " "

	webhook := []string{"curl", "-d", `'{"hi":1}'`}
	domain := site.AliasDomain
	_, err := netip.ParseAddr(domain)
	if site.Loopback && err != nil && domain != "localhost" && !strings.HasSuffix(domain, ".localhost") { // localhost and names below it resolve without DNS
		web := cmp.Or(site.Base.Port(), map[string]string{"http": "80", "https": "443"}[site.Base.Scheme])
		webhook = append(webhook, "--resolve", exampleAlias+"."+domain+":"+web+":127.0.0.1")
	}
	webhook = append(webhook, site.AliasURL(exampleAlias)+"/hook")

	return "\nOpen a tunnel to a server of yours on port 3000:\nssh -N -R " + exampleAlias + ":80:localhost:3000 " + flags + host +
		upCommand(site, identity) +
		"\n\nSend it a webhook:\n" + strings.Join(webhook, " ") +
		"\n\nSend the newest event again:\n" + ssh + "replay " + exampleAlias +
		"\n\nOpen the dashboard by a one-time link:\n" + ssh + "login" +
		"\n\nGet an API token, and list the events with it:\n" +
		"export RELAY_TOKEN=$(" + s.operatorCommand("token", "add", "--user", account) + ")\n" +
		`curl -s -H "Authorization: Bearer $RELAY_TOKEN" ` + quote(site.URL("/api/v1/events?alias="+exampleAlias)) + "\n\n"
}

// upCommand returns the relay command that opens the tunnel, with a comment. It returns "" if the command is
// for this machine and there is no relay program beside relayd.
func upCommand(site relay.Site, identity string) string {
	client := "relay"
	if site.Loopback {
		here, _ := os.Executable()
		client = filepath.Join(filepath.Dir(here), client)
		if _, err := os.Stat(client); err != nil {
			return ""
		}
		client = shellName(client)
	}
	line := quote(client) + " up --alias " + exampleAlias + " --echo"
	if site.SSHAddr != "localhost:2222" { // localhost:2222 is the default of the client
		line += " --server " + site.SSHAddr
	}
	if identity != "" {
		line += " --identity " + quote(identity)
	}
	return "\n\nOr, if you have no server there, return each request to its sender:\n" + line
}

// shellName returns the word that runs a program in a shell: the bare name if PATH leads to this file, else
// the path.
func shellName(file string) string {
	name := filepath.Base(file)
	if found, err := exec.LookPath(name); err == nil && filepath.IsAbs(found) {
		here, herr := os.Stat(file)
		there, terr := os.Stat(found)
		if herr == nil && terr == nil && os.SameFile(here, there) {
			return name
		}
	}
	return file
}

// operatorCommand returns a command line of this program for the same store.
func (s *operatorEnv) operatorCommand(args ...string) string {
	program, err := os.Executable()
	if err != nil {
		program = "relayd"
	}
	return strings.Join(mapSlice(slices.Concat([]string{shellName(program)}, args, s.options), quote), " ")
}

// plainWord matches the words that a shell takes without quotes.
var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_./:=,@%+-]+$`)

// quote returns s as one shell word.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// sshFlags returns the flags for the ssh commands that the dashboard shows to the account user: -i with a key
// file of the account, if ssh does not offer that key by default. If user is "", nobody is logged in, and the
// account of the likely admin is used. The flags name files of this machine, so there are none unless all
// listeners are on loopback.
func (a *app) sshFlags(user string) string {
	if !a.site.Loopback || !sockets.IsLoopback(a.site.Base.Hostname()) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	env := newOperatorEnv(a, nil)
	if user == "" {
		accounts, err := a.store.Accounts(ctx, relay.System())
		if err != nil {
			return ""
		}
		user = likelyAdmin(accounts, env.account())
	}
	if user == "" {
		return ""
	}
	if identity, err := env.identity(ctx, a.store, user); err == nil && identity != "" {
		return "-i " + quote(identity) + " -o IdentitiesOnly=yes"
	}
	return ""
}
