package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// same EXIT WORD… runs relay with the words over HTTP with TOKEN and over SSH with KEY, and plain ssh with
// the words if it understands them. All must exit with EXIT and give the same output. The output is stored in
// the file same.out.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: same EXIT WORD…")
	}
	want, words := args[0], args[1:]
	byHTTP := runRelay(ts, ts.Getenv("TOKEN"), words)
	ts.Check(os.WriteFile(ts.MkAbs("same.out"), []byte(byHTTP.stdout), 0o600))
	if strconv.Itoa(byHTTP.exit) != want {
		ts.Fatalf("exit %d, want %s:\n%s", byHTTP.exit, want, byHTTP.stderr)
	}
	others := map[string]ranRelay{"relay over SSH": runRelay(ts, "", append(words, "--identity", ts.Getenv("KEY")))}
	// Plain ssh has no --output, and the arguments of this test are not quoted for a remote command line.
	if line := strings.Join(words, " "); !strings.Contains(line, "--output") && !strings.Contains(line, `"`) {
		others["plain ssh"] = runSSH(ts, words)
	}
	for name, other := range others {
		if other.exit != byHTTP.exit {
			ts.Fatalf("%s: exit %d, want %s:\n%s", name, other.exit, want, other.stderr)
		}
		if a, b := steady(other.stdout), steady(byHTTP.stdout); a != b {
			ts.Fatalf("stdout of %s:\n%s\nand over HTTP:\n%s", name, a, b)
		}
		if asJSON := name == "plain ssh" && slices.Contains(words, "--json"); asJSON && json.Valid([]byte(other.stderr)) {
			continue // with --json, plain ssh prints the error as problem JSON in place of a message
		}
		if a, b := steady(other.stderr), steady(byHTTP.stderr); a != b {
			ts.Fatalf("stderr of %s:\n%s\nand over HTTP:\n%s", name, a, b)
		}
	}
}

// runSSH runs the words as a command of plain ssh. In the output on stderr, it replaces the ssh command line
// by relay.
func runSSH(ts *testscript.TestScript, words []string) ranRelay {
	line := make([]string, len(words))
	for i, word := range words {
		line[i] = word
		if word == "" || strings.ContainsAny(word, ` "\`) {
			line[i] = "'" + word + "'"
		}
	}
	ran := runProgram(ts, exec.Command("ssh", "-F", "none", "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
		"-o", "BatchMode=yes", "-i", ts.Getenv("KEY"), "-p", ts.Getenv("SSH"), "localhost", strings.Join(line, " ")))
	ran.stderr = strings.ReplaceAll(ran.stderr, "ssh -p "+ts.Getenv("SSH")+" localhost", "relay")
	return ran
}

type ranRelay struct {
	exit           int
	stdout, stderr string
}

func runRelay(ts *testscript.TestScript, token string, args []string) ranRelay {
	c := exec.Command(relayProgram(), args...)
	c.Dir = ts.MkAbs(".")
	c.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "TZ=UTC", "XDG_CONFIG_HOME=", "XDG_STATE_HOME=",
		"RELAY_SERVER="+ts.Getenv("RELAY_SERVER"), "RELAY_TOKEN="+token, "RELAY_URL="+ts.Getenv("BASE"))
	return runProgram(ts, c)
}

func runProgram(ts *testscript.TestScript, c *exec.Cmd) ranRelay {
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	return ranRelay{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// volatile matches the parts that differ between two runs of a command.
var volatile = regexp.MustCompile(`compared with attempt \d+: .*|\d\d\d\d-\d\d-\d\d |\d\d:\d\d:\d\d|\(\d+ms\)|/s/\S+|shared/[^/]+|attempt \d+|req_\w+|in \d+ms|\d+(\.\d+)? ?ms`)

// steady reduces output to its comparable parts: for JSON the names and types, for text everything except
// times and secrets.
func steady(out string) string {
	var whole any
	if json.Unmarshal([]byte(out), &whole) == nil {
		return shape(whole)
	}
	var b strings.Builder
	for line := range strings.Lines(out) {
		var v any
		if json.Unmarshal([]byte(line), &v) == nil {
			b.WriteString(shape(v) + "\n")
			continue
		}
		b.WriteString(volatile.ReplaceAllString(line, "*"))
	}
	return b.String()
}

// shape returns the names and types in a JSON value. For a list it returns the shapes that occur in the list.
func shape(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for name, value := range v {
			if name != "searchedBackTo" { // null or a time, depending on the speed of the search
				parts = append(parts, name+":"+shape(value))
			}
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		seen := map[string]bool{}
		var parts []string
		for _, item := range v {
			if s := shape(item); !seen[s] {
				seen[s] = true
				parts = append(parts, s)
			}
		}
		sort.Strings(parts)
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprintf("%T", v)
}
