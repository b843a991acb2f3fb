package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// TestSSHRemovedAliases: relay up has three aliases. One is removed, and the account loses the right to
// another. relay up continues with the last alias, and ends when it has none.
func TestSSHRemovedAliases(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	bob := r.person("bob")
	local := says(t, "x")
	for _, alias := range []string{"kept", "removed"} {
		r.relayd("alias", "add", alias, "--user", "bob")
	}
	r.relayd("alias", "add", "lent", "--user", "admin")
	r.must(204, "PUT", "/aliases/lent/members/bob", nil)
	config := filepath.Join(t.TempDir(), "webhooks.yaml")
	target := `{ target: "http://` + local + `" }`
	text := "version: 1\naliases:\n  kept: " + target + "\n  removed: " + target + "\n  lent: " + target + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	own := r.on(t)
	own.key, own.token = bob.key, bob.token
	u := own.up("--config", config)
	for _, alias := range []string{"kept", "removed", "lent"} {
		own.serves(t, alias, "x")
	}
	own.must(204, "DELETE", "/aliases/removed", nil)
	r.must(204, "DELETE", "/aliases/lent/members/bob", nil)
	relaytest.Until(t, 10*time.Second, "lent to be offline", func() bool { return r.state("lent") == "offline" })
	relaytest.Until(t, 10*time.Second, "words about both", func() bool {
		said := u.Out.String() + u.Err.String()
		return strings.Contains(said, "removed was removed") && strings.Contains(said, "lent was removed, or you may not use it")
	})
	own.serves(t, "kept", "x")
	// A connection on which the relay was silent for 10 s has another cause: a machine so busy that relayd did not run.
	if said := u.Err.String(); strings.Contains(said, "connecting again") && !strings.Contains(said, "been silent for") {
		t.Errorf("the connection was lost: %s", said)
	}
	own.must(204, "DELETE", "/aliases/kept", nil)
	if code := u.Code(t, 20*time.Second); code != 5 {
		t.Errorf("exit %d", code)
	}
}
