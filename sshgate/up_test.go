package sshgate

import (
	"bufio"
	"encoding/json"
	"io"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
)

func TestUpProtocol(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	b.store.alias("foreign", 2)
	b.store.queue(a, 3)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	forwards(t, c, "foreign", 80)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, _ := s.StdinPipe()
	out, _ := s.StdoutPipe()
	if err := s.Start("up --json"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewScanner(out)
	next := func(want string) map[string]any {
		t.Helper()
		if !r.Scan() {
			t.Fatalf("no more lines, want %s", want)
		}
		var m map[string]any
		if err := json.Unmarshal(r.Bytes(), &m); err != nil || m["type"] != want {
			t.Fatalf("line %s, want type %s", r.Text(), want)
		}
		return m
	}
	if m := next("hello"); m["host"] != "relay.example.test" || m["baseUrl"] != "http://relay.example.test:8080" || m["user"] != "alice" || m["version"] != "v9-test" {
		t.Errorf("hello %v", m)
	}
	if m := next("online"); m["alias"] != "a" || m["url"] != "http://a.example.test:8080" || m["queuedEvents"] != 3.0 {
		t.Errorf("online %v", m)
	}
	if m := next("refused"); m["alias"] != "foreign" || m["code"] != relay.CodeNotFound || m["message"] == "" {
		t.Errorf("refused %v", m)
	}
	_, _ = io.WriteString(in, "replay-queued a\n")
	if m := next("released"); m["released"] != 3.0 {
		t.Errorf("released %v", m)
	}
	e := b.store.event(1, a)
	b.store.publish(attemptEnded(t, b, e)...)
	m := next("request")
	if m["event"].(map[string]any)["id"] != e.ID.String() || m["attempt"].(map[string]any)["number"] != 1.0 {
		t.Errorf("request %v", m)
	}
	forwards(t, c, "late", 80)
	if m := next("online"); m["alias"] != "late" || m["queuedEvents"] != 0.0 {
		t.Errorf("online %v", m)
	}
	_, _, _ = c.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(forwardRequest{"late", 80}))
	next("offline")
	forwards(t, b.mustDial(b.alice), "a", 80)
	if m := next("superseded"); m["alias"] != "a" || m["message"] != "taken over by a newer connection" {
		t.Errorf("superseded %v", m)
	}
	if err := s.Wait(); err == nil || err.(*ssh.ExitError).ExitStatus() != exitTaken {
		t.Errorf("exit %v", err)
	}
}
