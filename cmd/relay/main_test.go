package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/relaytest"
)

// TestMain removes the programs that the tests have built, and ends the shared relayd.
func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	defer shared.stop()
	return relaytest.Main(m)
}

// TestScripts runs the program as users do. Each script has an empty home, and reaches no relay except the
// one that it starts with serve.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ssh", "ssh-keygen", "curl"} {
		needTool(t, tool)
	}
	running := &servers{list: map[string]*server{}}
	programs := built(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"relay": runs, "exits": exits, "until": until, "same": same, "serve": running.serve, "stop-server": running.stop, "await": await, "approve": approve,
		},
		Setup: func(e *testscript.Env) error {
			home := e.WorkDir + "/home"
			e.Setenv("HOME", home)
			e.Setenv("PATH", programs+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("TZ", "UTC")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each program built with the race detector sleeps for a second before it exits
			e.Setenv("ESCAPE", "\x1b[2J")
			for _, name := range []string{"RELAY_SERVER", "RELAY_TOKEN", "RELAY_URL", "SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
				e.Setenv(name, "")
			}
			return os.Mkdir(home, 0o700)
		},
	})
}

// runs implements the command relay of the scripts.
func runs(ts *testscript.TestScript, neg bool, args []string) {
	switch err := ts.Exec("relay", args...); {
	case err != nil && !neg:
		ts.Fatalf("relay: %v", err)
	case err == nil && neg:
		ts.Fatalf("relay did not fail")
	}
}

// until REGEXP command… repeats a command until it succeeds with a matching stdout.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP command args")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	if !poll(func() bool { return ts.Exec(args[1], args[2:]...) == nil && re.MatchString(ts.ReadFile("stdout")) }) {
		ts.Fatalf("the output of %s never matched %s", args[1], args[0])
	}
}

// exits N command… checks the exit code of a command. stdout and stderr are those of the command.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N command args")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want, _ := strconv.Atoi(args[0]); code != want {
		ts.Fatalf("exit %d, want %d", code, want)
	}
}
