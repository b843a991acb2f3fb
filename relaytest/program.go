// Package relaytest holds what the tests of several packages set up alike: the built
// programs, processes with their output, keys and certificates, free ports, a proxy that
// can be cut, and waits that fit the machine. Only tests import it.
package relaytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// programsVariable names a folder with the built programs. make test builds them once and
// sets it for every package; make test-all points it to programs that look for data races.
const programsVariable = "RELAY_TEST_PROGRAMS"

var built struct {
	once sync.Once
	dir  string
	err  error
}

// Programs is the folder with relayd and relay, built without the race detector unless
// RELAY_TEST_PROGRAMS names another folder. A package whose tests call it runs its tests
// by Main, which removes the folder.
func Programs(t testing.TB) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = programs() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// Program is the path of relayd or relay.
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
	if err := build(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// build builds both programs into dir. It runs in the folder of the module relay, wherever
// the tests run: the module conformance has not all that relayd needs.
func build(dir string) error {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "relay").Output()
	if err != nil {
		return fmt.Errorf("find the module relay: %w", err)
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator), "./cmd/relayd", "./cmd/relay")
	cmd.Dir = strings.TrimSpace(string(module))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return nil
}

// Main runs the tests of a package, measures meanwhile how busy the machine is (Slowdown),
// removes the programs that the tests built, and gives the exit code.
func Main(m *testing.M) int {
	meter.once.Do(startMeter)
	defer func() {
		if os.Getenv(programsVariable) == "" && built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
	}()
	return m.Run()
}
