package sshgate

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHelpOfEveryCommand: each command has a help text that fits a terminal, with an example, and
// docs/ssh.md shows the command as typed.
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
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 100 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	asJSON, _, _ := runs(t, c, "help --json")
	var all struct {
		Data []struct {
			Name, Usage     string
			Flags, Examples []json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(asJSON), &all); err != nil || len(all.Data) < 10 {
		t.Fatalf("%d commands: %v", len(all.Data), err)
	}
	for _, k := range all.Data {
		text, _, code := runs(t, c, "help "+k.Name)
		if code != 0 || !strings.Contains(text, "\n  "+k.Usage+"\n") || len(k.Examples) == 0 {
			t.Errorf("help %s: exit %d: %s", k.Name, code, text)
		}
		for _, example := range k.Examples {
			if !strings.HasPrefix(string(example), `"ssh `) {
				t.Errorf("help %s: this cannot be typed here: %s", k.Name, example)
			}
		}
		for _, f := range k.Flags {
			var flag struct{ Description string }
			if err := json.Unmarshal(f, &flag); err != nil || !strings.Contains(text, flag.Description) {
				t.Errorf("help %s does not explain %s", k.Name, f)
			}
		}
		if !strings.Contains(list, "  "+k.Name+" ") {
			t.Errorf("%s is not in the list", k.Name)
		}
		if !strings.Contains(string(page), "| `"+k.Name) || !strings.Contains(string(page), "ssh HOST "+k.Name) {
			t.Errorf("docs/ssh.md has no row, or no example, for %s", k.Name)
		}
	}
}
