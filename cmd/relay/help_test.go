package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"relay/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

// inProcess runs the program within the test, with its output in files.
func inProcess(t *testing.T, env map[string]string, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	in, out, talk := open("in"), open("out"), open("err")
	p := &program{in: in, out: out, err: talk, getenv: func(name string) string {
		if name == "HOME" && env[name] == "" {
			return dir
		}
		return env[name]
	}}
	root := p.root()
	root.SetArgs(args)
	exit = p.front().Exit(t.Context(), root.ExecuteContext(t.Context()))
	read := func(f *os.File) string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return exit, read(out), read(talk)
}

// every returns c and the visible commands below it, at every level.
func every(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			list = append(list, every(sub)...)
		}
	}
	return list
}

// TestHelp compares the help of every command with the agreed text. Run the test with -update after an
// intended change.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := (&program{out: os.Stdout, err: os.Stderr, getenv: func(string) string { return "" }}).root()
	seen := map[string]bool{}
	for _, c := range every(root) {
		words := append(strings.Fields(c.CommandPath())[1:], "--help")
		exit, stdout, stderr := inProcess(t, nil, words...)
		if exit != 0 || stderr != "" {
			t.Errorf("%v: exit %d, %s", words, exit, stderr)
		}
		file := filepath.Join("testdata", "help", strings.ReplaceAll(c.CommandPath(), " ", "-")+".golden")
		seen[file] = true
		if *update {
			if err := os.WriteFile(file, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if stdout != string(want) {
			t.Errorf("%s differs; go test ./cmd/relay -run TestHelp -update writes it anew:\n%s", file, stdout)
		}
		for line := range strings.Lines(stdout) {
			if line = strings.TrimSuffix(line, "\n"); record.SafeText(line) != line {
				t.Errorf("%s: %q", file, line)
			}
		}
	}
	files, err := filepath.Glob("testdata/help/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !seen[file] {
			t.Errorf("%s is of no command", file)
		}
	}
}

// TestHelpOfACommand: `help COMMAND` prints the same text as `COMMAND --help`, and fails for unknown
// commands.
func TestHelpOfACommand(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{}, {"wait"}, {"config", "check"}} {
		_, want, _ := inProcess(t, nil, append(words, "--help")...)
		exit, got, _ := inProcess(t, nil, append([]string{"help"}, words...)...)
		if exit != 0 || got != want {
			t.Errorf("help %v: exit %d, %s", words, exit, got)
		}
	}
	exit, _, stderr := inProcess(t, nil, "help", "wat")
	if exit != 2 || !strings.Contains(stderr, "did you mean relay wait") {
		t.Errorf("help wat: exit %d, %s", exit, stderr)
	}
}

// TestManual: each command has a manual page, whose lines begin with no unknown roff request. The page of
// wait names --timeout.
func TestManual(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if exit, _, stderr := inProcess(t, nil, "man", filepath.Join(dir, "man1")); exit != 0 {
		t.Fatal(stderr)
	}
	root := (&program{out: os.Stdout, err: os.Stderr, getenv: func(string) string { return "" }}).root()
	for _, c := range every(root) {
		page, err := os.ReadFile(filepath.Join(dir, "man1", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".SH ") && !strings.HasPrefix(line, ".B") &&
				!strings.HasPrefix(line, ".TH ") && line != ".TP\n" && line != ".PP\n" && line != ".nf\n" && line != ".fi\n" {
				t.Errorf("%s: %q", c.CommandPath(), line)
			}
		}
		if c.Name() == "wait" && !strings.Contains(string(page), `.B \-\-timeout`) {
			t.Errorf("the page of wait does not name --timeout:\n%s", page)
		}
	}
	if exit, _, _ := inProcess(t, nil, "man", "/dev/null/x"); exit != 1 {
		t.Errorf("a folder that cannot be: exit %d", exit)
	}
}
