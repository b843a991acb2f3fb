package store

import (
	commandline "flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/file"
)

// TestMain keeps the databases of the tests in memory where there is enough: on a busy disk
// they would mostly wait for each other's commits. An fsync does nothing there, so no test of
// this package may rely on one: a loss of power is tested with lossyDisk, and the order of
// sync and answer by TestFaultSync of conformance, on the disk. Benchmarks and what somebody
// put elsewhere by TMPDIR stay on the disk.
func TestMain(m *testing.M) {
	commandline.Parse()
	relaytest.Slowdown(time.Now()) // starts to measure how busy the machine is
	measured := commandline.Lookup("test.bench").Value.String() != "" || os.Getenv("RELAY_LONG") != ""
	if measured || os.Getenv("TMPDIR") != "" {
		os.Exit(m.Run())
	}
	os.Exit(inMemory(m.Run))
}

func inMemory(run func() int) int {
	const memory, enough = "/dev/shm", 2 << 30 // many times what they use
	if free, err := file.FreeSpace(memory); err != nil || free < enough {
		return run()
	}
	dropLeft(memory)
	dir, err := os.MkdirTemp(memory, prefix)
	if err != nil {
		return run()
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return run()
	}
	return run()
}

const prefix = "relay-store-" // of folders in memory

// dropLeft removes what tests that were killed left: it is memory.
func dropLeft(memory string) {
	list, _ := os.ReadDir(memory) // best effort, like the rest of it
	for _, e := range list {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(memory, e.Name()))
		}
	}
}
