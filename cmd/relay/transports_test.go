package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// same EXIT WORD… runs relay with the words over SSH with KEY, then over HTTP with
// TOKEN, and demands one exit code and the same output from both. It leaves the
// output in the file same.out.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: same EXIT WORD…")
	}
	bySSH := runRelay(ts, "", append(args[1:], "--identity", ts.Getenv("KEY")))
	byHTTP := runRelay(ts, ts.Getenv("TOKEN"), args[1:])
	ts.Check(os.WriteFile(ts.MkAbs("same.out"), []byte(byHTTP.stdout), 0o600))
	if want := args[0]; strconv.Itoa(bySSH.exit) != want || strconv.Itoa(byHTTP.exit) != want {
		ts.Fatalf("exit %d over SSH, %d over HTTP, want %s:\n%s%s", bySSH.exit, byHTTP.exit, want, bySSH.stderr, byHTTP.stderr)
	}
	if a, b := steady(bySSH.stdout), steady(byHTTP.stdout); a != b {
		ts.Fatalf("stdout over SSH:\n%s\nand over HTTP:\n%s", a, b)
	}
	if a, b := steady(bySSH.stderr), steady(byHTTP.stderr); a != b {
		ts.Fatalf("stderr over SSH:\n%s\nand over HTTP:\n%s", a, b)
	}
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
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	return ranRelay{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// volatile is what two runs of one command never have in common.
var volatile = regexp.MustCompile(`\d\d\d\d-\d\d-\d\d |\d\d:\d\d:\d\d|\(\d+ms\)|/s/\S+|shared/[^/]+|replay \d+|req_\w+|in \d+ms|\d+(\.\d+)? ?ms`)

// steady makes output comparable: of JSON the names and types, of text all but times
// and secrets.
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

// shape is the form of a JSON value; of lists the forms that occur in them.
func shape(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for name, value := range v {
			if name != "searchedBackTo" { // null or not by how far was looked
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
