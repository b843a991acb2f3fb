package conformance

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"relay/store/pgtest"
)

// aliasRecord returns the record of an alias from the API of this node. The record lacks the URL, because the
// nodes of a test have different ports.
func (r *relayServer) aliasRecord(name string) string {
	r.t.Helper()
	_, body := r.api("GET", "/aliases/"+name, nil)
	var record map[string]any
	if err := json.Unmarshal(body, &record); err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	delete(record, "url")
	text, err := json.Marshal(record)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestAliasRecordIsTheSameAtEachNode: every node returns the same record of an alias, with the same times,
// even after a restart of a node.
func TestAliasRecordIsTheSameAtEachNode(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	nodes := threeNodes(t, databaseURL)
	a, b, c := nodes[0], nodes[1], nodes[2]
	before := map[string]string{}
	same := func(step, alias, state string, restarted bool) {
		t.Helper()
		record := ""
		a.waitFor(30*time.Second, step+": one record of "+alias+" at all nodes", func() bool {
			record = a.aliasRecord(alias)
			changed := record != before[alias]
			return changed != restarted && a.state(alias) == state && record == b.aliasRecord(alias) && record == c.aliasRecord(alias)
		})
		if had, now := sinceOf(t, before[alias]), sinceOf(t, record); now < had || now == had && !restarted {
			t.Errorf("%s: since %q, before %q", step, now, had)
		}
		before[alias] = record
		for _, r := range nodes {
			if got := r.aliasRecord(alias); got != record {
				t.Errorf("%s: the record does not stay\n%s\n%s", step, got, record)
			}
		}
	}
	restart := func(r *relayServer, sig syscall.Signal) {
		t.Helper()
		r.stop(sig)
		r.start()
		r.waitFor(30*time.Second, "three nodes", func() bool { return r.metric("relay_store_nodes") == 3 })
	}

	a.alias("fresh")
	a.waitFor(10*time.Second, "fresh to be known", func() bool { return b.state("fresh") == "never" && c.state("fresh") == "never" })
	if x, y, z := a.aliasRecord("fresh"), b.aliasRecord("fresh"), c.aliasRecord("fresh"); x != y || x != z {
		t.Errorf("never online:\n%s\n%s\n%s", x, y, z)
	}
	client := b.tunnel("moves", says(t, "x"))
	same("online at another node", "moves", "online", false)
	restart(a, syscall.SIGTERM)
	same("a foreign node started again", "moves", "online", true)
	wake := freeze(t, client.Cmd.Process.Pid)
	same("stale", "moves", "stale", false)
	wake()
	same("alive again", "moves", "online", false)
	a.must(200, "PATCH", "/aliases/moves", []byte(`{"paused":true}`))
	same("paused at a foreign node", "moves", "offline", false)
	c.must(200, "PATCH", "/aliases/moves", []byte(`{"paused":false}`))
	same("resumed", "moves", "online", false)
	second := c.tunnel("moves", says(t, "y"))
	same("taken over at a third node", "moves", "online", false)
	second.Kill()
	same("the tunnel ended", "moves", "offline", false)
	restart(a, syscall.SIGTERM)
	restart(c, syscall.SIGKILL)
	same("nodes started again while it is offline", "moves", "offline", true)
	b.tunnel("moves", says(t, "z"))
	same("online once more", "moves", "online", false)
	b.stop(syscall.SIGKILL)
	a.waitFor(30*time.Second, "moves to be offline", func() bool { return a.state("moves") == "offline" && c.state("moves") == "offline" })
	b.start()
	a.waitFor(30*time.Second, "moves to be known at the new start", func() bool {
		record := a.aliasRecord("moves")
		return record == b.aliasRecord("moves") && record == c.aliasRecord("moves")
	})
	if x, y, z := a.aliasRecord("moves"), b.aliasRecord("moves"), c.aliasRecord("moves"); a.state("moves") == "offline" && (x != y || x != z) {
		t.Errorf("its node was killed:\n%s\n%s\n%s", x, y, z)
	}
}

// sinceOf returns the time of the last change of an alias' state in a record; "" = the alias was never
// online.
func sinceOf(t *testing.T, record string) string {
	t.Helper()
	var a struct{ Since string }
	if record == "" {
		return ""
	}
	if err := json.Unmarshal([]byte(record), &a); err != nil {
		t.Fatal(err)
	}
	return a.Since
}
