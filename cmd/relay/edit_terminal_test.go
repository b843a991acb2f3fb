//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/relaytest"
)

// TestEditAtATerminal: the editor uses the terminal, and its result is signed and sent. A refused text stays
// in a file that the message names; a sent or empty text leaves no file. The sender is that of the sample,
// even if the user removes header lines.
func TestEditAtATerminal(t *testing.T) {
	t.Parallel()
	r := useSharedRelay(t)
	up := r.upAtTerminal(t, "edit-dev")
	editor := filepath.Join(t.TempDir(), "editor")
	relaytest.WriteScript(t, editor, "[ -t 0 ] && [ -t 1 ] || exit 9\nprintf 'editing, which change? '\nread change\n"+
		"cp \"$1\" \"$SEEN\"\nsed -i \"$change\" \"$1\"")
	for name, c := range map[string]struct {
		args   []string
		change string
		says   string
		ends   string
		kept   bool
	}{
		"signed here":  {[]string{"--sign", "--secret-env", "S"}, `/^X-GitHub-Event/d;s/"ref": *"[^"]*"/"ref":"edited"/`, `\[200\] POST / \(\d+ms\) evt_`, "exit status 0", false},
		"no secret":    {[]string{"--sign"}, `/^X-GitHub-Event/d`, `no secret of github`, "exit status 1", true},
		"no request":   {nil, `/^Host/d`, `nothing was sent: `, "exit status 1", true},
		"an empty one": {nil, `d`, `canceled: the text is empty`, "exit status 1", false},
	} {
		t.Run(name, func(t *testing.T) {
			seen, temp := filepath.Join(t.TempDir(), "seen"), t.TempDir()
			env := []string{"EDITOR=" + editor, "SEEN=" + seen, "S=a secret of the test", "TMPDIR=" + temp}
			a := runAtTerminal(t, env, append([]string{"send", "edit-dev", "--sample", "github/push", "--edit", "--server", r.ssh, "--identity", r.key}, c.args...)...)
			a.sees("editing, which change")
			a.press(c.change + "\n")
			a.sees(c.says)
			a.leaves(c.ends)
			if text, err := os.ReadFile(seen); err != nil || !strings.HasPrefix(string(text), "POST / HTTP/1.1\n") || !strings.Contains(string(text), "\nX-GitHub-Event: push\n") {
				t.Errorf("the editor saw %q, %v", text, err)
			}
			files, err := filepath.Glob(filepath.Join(temp, "*", "request.http"))
			if err != nil || (len(files) == 1) != c.kept {
				t.Fatalf("kept are %q, %v", files, err)
			}
			if c.kept {
				if named := a.sees(`your text is stored in (\S+)\r\n`)[1]; named != files[0] {
					t.Errorf("%s is named, and %s kept", named, files[0])
				}
			}
		})
	}
	up.sees(`"ref": *"edited"`)
	up.press("\x03")
	up.leaves("exit status 0")
	if said := up.out.String(); strings.Count(said, "] POST / (") > 1 {
		t.Errorf("more than the one edited request arrived: %s", said)
	}
}
