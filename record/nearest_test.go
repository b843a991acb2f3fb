package record_test

import (
	"strings"
	"testing"

	"relay/record"
)

func TestNearest(t *testing.T) {
	known := []string{"port", "target", "hostHeader"}
	for typed, want := range map[string]string{
		"prot": "port", "PORT": "port", "tagret": "target", "hostheader": "hostHeader", "host": "hostHeader", "zzz": "", "": "",
	} {
		if near := record.Nearest(typed, known); near != want {
			t.Errorf("%q is near %q, want %q", typed, near, want)
		}
	}
	commands := []string{"help", "whoami", "aliases", "events", "show", "replay", "replay-queued", "share", "login", "keys"}
	for typed, want := range map[string]string{
		"evnts": "events", "event": "events", "alias": "aliases", "reply": "replay", "replay-que": "replay-queued",
		"shwo": "show", "ls": "", "xyzzy": "", "Keys": "keys", "whoamI": "whoami",
	} {
		if near := record.Nearest(typed, commands); near != want {
			t.Errorf("%q is near %q, want %q", typed, near, want)
		}
	}
	if near := record.Nearest(strings.Repeat("p", 1<<20), known); near != "" {
		t.Errorf("a huge word is near %q", near)
	}
}
