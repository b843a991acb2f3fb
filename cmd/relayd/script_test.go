package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"relay/relaytest"
)

// TestMain lets this test binary act as relayd, and checks for goroutines that are left after the servers of
// the tests.
func TestMain(m *testing.M) {
	testscript.Main(leaks{m}, map[string]func(){"relayd": main})
}

type leaks struct{ *testing.M }

// Run runs the tests.
func (l leaks) Run() int {
	code := relaytest.Main(l.M)
	if code != 0 {
		return code
	}
	var err error
	for range 10 { // each call waits up to two seconds for goroutines to end; a busy machine needs more calls
		if err = goleak.Find(goleak.IgnoreAnyFunction("relay/relaytest.startMeter.func1")); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestScripts runs testdata/script with relayd as a separate process, as an operator calls it.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ssh", "curl", "ssh-keygen"} {
		needTool(t, tool)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireUniqueNames:  true,
		RequireExplicitExec: false,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await": await,
			"ports": ports,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("REAL_SSH", lookPath("ssh"))
			e.Setenv("GORACE", hurry)
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
	})
}

// hurry disables the wait of the race detector, one second at the end of each process, for late reports.
const hurry = "atexit_sleep_ms=0"

// await FILE REGEXP [NAME…] waits until the file matches, and stores the groups in the environment variables
// NAME.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await FILE REGEXP [NAME…]")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var last []byte
	found := relaytest.Poll(20*time.Second, func() bool {
		last, _ = os.ReadFile(ts.MkAbs(args[0]))
		m := re.FindSubmatch(last)
		for i := range m {
			if i > 0 && i+1 < len(args) {
				ts.Setenv(args[i+1], string(m[i]))
			}
		}
		return m != nil
	})
	if !found {
		ts.Fatalf("%s never matched %s; it holds:\n%s", args[0], args[1], last)
	}
}

// ports NAME… stores free TCP ports in environment variables. The ports stay reserved until the script ends.
func ports(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		addr, release, err := relaytest.ReserveAddr()
		ts.Check(err)
		ts.Defer(release)
		_, port, _ := net.SplitHostPort(addr)
		ts.Setenv(name, port)
	}
}
