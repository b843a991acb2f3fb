package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this program itself the command relay of the scripts.
func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){"relay": main})
}

// tidy removes what was built for the tests.
type tidy struct{ *testing.M }

// Run runs the tests.
func (t tidy) Run() int {
	defer removeBuilt()
	return t.M.Run()
}

// TestScripts runs the program as people do. Homes are empty, and no relay is within
// reach but the one that a script starts with serve.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ssh", "ssh-keygen", "curl"} {
		needTool(t, tool)
	}
	running := &servers{list: map[string]*server{}}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "same": same, "serve": running.serve, "stop-server": running.stop, "await": await, "approve": approve,
		},
		Setup: func(e *testscript.Env) error {
			home := e.WorkDir + "/home"
			e.Setenv("HOME", home)
			e.Setenv("TZ", "UTC")
			e.Setenv("ESCAPE", "\x1b[2J")
			for _, name := range []string{"RELAY_SERVER", "RELAY_TOKEN", "RELAY_URL", "SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
				e.Setenv(name, "")
			}
			return os.Mkdir(home, 0o700)
		},
	})
}

// exits N command… demands an exit code. Its output is that of the last command.
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
