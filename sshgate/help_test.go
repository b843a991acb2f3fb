package sshgate

import (
	"os"
	"strings"
	"testing"
)

// TestHelpOfEveryCommand: each explains itself, in lines that fit a terminal, with an
// example, and stands in docs/ssh.md as it is typed.
func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/ssh.md")
	if err != nil {
		t.Fatal(err)
	}
	b := newFixture(t)
	c := b.mustDial(b.alice)
	list, _, _ := runs(t, c, "help")
	for line := range strings.Lines(list) {
		if columnsOf(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("%d columns: %s", columnsOf(line), line)
		}
	}
	for _, k := range commands() {
		text, _, code := runs(t, c, "help "+k.name)
		if code != 0 || !strings.HasPrefix(text, "usage: ssh -p 2222 relay.example.test "+k.usage()+"\n") || len(k.examples) == 0 {
			t.Errorf("help %s: exit %d: %s", k.name, code, text)
		}
		for _, f := range k.flags {
			if !strings.Contains(text, "  "+f.String()) {
				t.Errorf("help %s does not explain %s", k.name, f)
			}
		}
		if !strings.Contains(list, "  "+strings.TrimSpace(k.name+" "+k.args)+" ") {
			t.Errorf("%s is not in the list", k.name)
		}
		if !strings.Contains(string(page), "| `"+k.name) || !strings.Contains(string(page), "ssh HOST "+k.name) {
			t.Errorf("docs/ssh.md has no row, or no example, for %s", k.name)
		}
	}
}
