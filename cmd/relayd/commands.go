package main

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"relay"
)

// demoAlias is the alias in printed commands.
const demoAlias = "demo"

// defaultIdentities are the private keys that ssh offers without being told.
var defaultIdentities = []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_dsa"}

// identity is the private key file that ssh must be told about: "" when it offers
// a registered key by itself, from its default files or its agent.
func (s *self) identity(registered map[string]bool) string {
	other := ""
	for _, pub := range append(s.publicKeyFiles(), s.generatedKey()+".pub") {
		keys, err := readKeyFile(pub)
		private := strings.TrimSuffix(pub, ".pub")
		if err != nil || !registered[keys[0].fingerprint] {
			continue
		}
		if _, err := os.Stat(private); err != nil {
			continue // the private half is elsewhere: an agent or a card
		}
		if private != s.generatedKey() && slices.Contains(defaultIdentities, filepath.Base(private)) {
			return ""
		}
		if other == "" {
			other = private
		}
	}
	return other
}

// commands are lines that work as they stand, pasted into a shell.
func (s *self) commands(site relay.Site, account, identity string) *commands {
	token := s.operatorCommand("token", "add", "--user", account)
	auth := `-H "Authorization: Bearer $RELAY_TOKEN"`
	newest := site.URL("/api/v1/events?alias=" + demoAlias + "&limit=1")
	list := "curl -s " + auth + " " + quote(newest)
	return &commands{
		SSH:   sshCommand(site, identity),
		Curl:  curlCommand(site),
		Token: "export RELAY_TOKEN=$(" + token + ")",
		List:  list,
		Replay: "curl -s -X POST " + auth + " " + site.URL("/api/v1/events/") +
			"$(" + list + ` | grep -o 'evt_[0-9a-z]*' | head -n 1)/replay`,
		Login: s.operatorCommand("login-link", "--user", account),
	}
}

func sshCommand(site relay.Site, identity string) string {
	words := []string{"ssh", "-N", "-R", demoAlias + ":80:localhost:3000"}
	host, port, _ := net.SplitHostPort(site.SSHAddr)
	if port != "22" {
		words = append(words, "-p", port)
	}
	if identity != "" {
		words = append(words, "-i", quote(identity), "-o", "IdentitiesOnly=yes")
	}
	return strings.Join(append(words, host), " ")
}

// curlCommand sends a request to the alias. Only localhost and what is below it
// resolves everywhere without DNS, so another domain on loopback is pinned.
func curlCommand(site relay.Site) string {
	words := []string{"curl", "-d", `'{"hi":1}'`}
	domain := site.AliasDomain
	_, err := netip.ParseAddr(domain)
	if site.Loopback && err != nil && domain != "localhost" && !strings.HasSuffix(domain, ".localhost") {
		port := site.Base.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[site.Base.Scheme]
		}
		words = append(words, "--resolve", demoAlias+"."+domain+":"+port+":127.0.0.1")
	}
	return strings.Join(append(words, site.AliasURL(demoAlias)+"/hook"), " ")
}

// operatorCommand is this program called again on the same store.
func (s *self) operatorCommand(args ...string) string {
	words := []string{quote(program())}
	for _, w := range append(args, s.options...) {
		words = append(words, quote(w))
	}
	return strings.Join(words, " ")
}

// program is how a shell finds this program again: by its name where that leads
// here, else by its path.
func program() string {
	path, err := os.Executable()
	if err != nil {
		return "relayd"
	}
	if found, err := exec.LookPath("relayd"); err == nil {
		here, herr := os.Stat(path)
		there, terr := os.Stat(found)
		if herr == nil && terr == nil && os.SameFile(here, there) && filepath.IsAbs(found) {
			return "relayd"
		}
	}
	return path
}

// quote makes one shell word of s.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
