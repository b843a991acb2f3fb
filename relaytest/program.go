// Package relaytest holds the common set-up of tests in several packages: the built programs,
// processes with their output, keys and certificates, free ports, a proxy that can be cut, and waits
// that adapt to the machine. Only tests import it.
package relaytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// programsVariable names the environment variable for the folder with the built programs. make test
// builds them once and sets it for every package; make test-all sets it to programs with the race
// detector.
const programsVariable = "RELAY_TEST_PROGRAMS"

// Build returns the folder with relayd and relay. This is the folder in RELAY_TEST_PROGRAMS, if set.
// Otherwise the first call in a process builds the programs into a new folder, without the race detector. A
// package whose tests use the programs runs its tests by Main, or calls Remove at the end.
var Build = sync.OnceValues(programs)

// Remove removes the programs that Build has built.
func Remove() {
	if own != "" {
		_ = os.RemoveAll(own)
	}
}

var own string // the folder with the programs, if this process has built them

// Programs returns the folder with relayd and relay; see Build.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Program returns the path of relayd or relay.
func Program(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(Programs(t), name)
}

func programs() (string, error) {
	if dir := os.Getenv(programsVariable); dir != "" {
		for _, name := range []string{"relayd", "relay"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				return "", fmt.Errorf("%s: %w", programsVariable, err)
			}
		}
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "relay-programs-")
	if err != nil {
		return "", err
	}
	own = dir
	// The go command must run in the folder of the module relay, because the module conformance does not have
	// all dependencies of relayd.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "relay").Output()
	if err != nil {
		return "", fmt.Errorf("find the module relay: %w", err)
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator), "./cmd/relayd", "./cmd/relay")
	cmd.Dir = strings.TrimSpace(string(module))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return dir, nil
}

// RaceEnabled reports whether the test itself runs with the race detector.
func RaceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Main runs the tests of a package and returns the exit code. Then it removes the programs that the tests built.
func Main(m *testing.M) int {
	defer Remove()
	return m.Run()
}

// WriteScript writes a shell script that can be run at once. It keeps other goroutines from starting a
// process during the write. Otherwise the new process would inherit the open file for a moment, and the
// kernel does not run a file that is open for writing.
func WriteScript(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
