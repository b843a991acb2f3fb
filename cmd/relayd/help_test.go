package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"relay/cli"
)

// TestHelp: help lists every command and every setting below a heading, and its lines fit a terminal. Only
// the help of serve lists all settings.
func TestHelp(t *testing.T) {
	t.Parallel()
	help := func(words ...string) string {
		t.Helper()
		var out strings.Builder
		if code := run(t.Context(), append(words, "--help"), func(string) string { return "" }, &out, io.Discard); code != cli.ExitOK {
			t.Fatalf("%v: exit %d", words, code)
		}
		return out.String()
	}
	list := help()
	root := (&program{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}).rootCommand()
	for _, c := range root.Commands() {
		if c.Hidden {
			continue
		}
		if c.GroupID == "" || !strings.Contains(list, "\n  "+c.Name()+" ") {
			t.Errorf("%s is below no heading", c.Name())
		}
		checkWidths(t, c, help(c.Name()))
	}

	text := help("serve")
	var defaults Config
	for _, s := range defaults.settings() {
		_, below, ok := strings.Cut(text, "\n"+s.group+":\n")
		section, _, _ := strings.Cut(below, "\n\n")
		flag := regexp.MustCompile(`(?m)^ +--` + s.name + ` `)
		if !ok || len(flag.FindAllString(text, -1)) != 1 || !flag.MatchString(section) {
			t.Errorf("--%s is not once below %q", s.name, s.group)
		}
	}
	if doctor := help("doctor"); strings.Contains(doctor, "--max-head") || !strings.Contains(doctor, "--data-dir") {
		t.Errorf("doctor lists more settings than it needs, or too few:\n%s", doctor)
	}
}

// checkWidths fails the test if a line of help is wider than a terminal.
func checkWidths(t *testing.T, c *cobra.Command, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("help of %s: %d columns: %s", c.Name(), n, line)
		}
	}
}
