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

// TestMain keeps the databases of the tests in memory if enough memory is free, because on a busy disk the
// tests mostly wait for commits. An fsync has no effect there, so no test may rely on it; tests of power loss
// use package powertest. Benchmarks, and tests with TMPDIR or RELAY_LONG set, stay on the disk.
func TestMain(m *testing.M) {
	commandline.Parse()
	relaytest.Slowdown(time.Now()) // this call starts to measure how busy the machine is
	measured := commandline.Lookup("test.bench").Value.String() != "" || os.Getenv("RELAY_LONG") != ""
	if measured || os.Getenv("TMPDIR") != "" {
		os.Exit(m.Run())
	}
	os.Exit(inMemory(m.Run))
}

func inMemory(run func() int) int {
	const memory, enough = "/dev/shm", 2 << 30 // 2 GiB are many times the space that the tests use
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

const prefix = "relay-store-"

// dropLeft removes the memory files that killed tests left behind.
func dropLeft(memory string) {
	list, _ := os.ReadDir(memory) // errors are ignored, because old files do no harm
	for _, e := range list {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(memory, e.Name()))
		}
	}
}
