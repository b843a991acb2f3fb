package store

import (
	commandline "flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain keeps the databases of the tests in memory where there is room: on a busy
// disk they would mostly wait for each other's commits. What is measured stays on the
// disk, and so does what somebody put elsewhere by TMPDIR.
func TestMain(m *testing.M) {
	commandline.Parse()
	measured := commandline.Lookup("test.bench").Value.String() != "" || os.Getenv("RELAY_LONG") != ""
	if measured || os.Getenv("TMPDIR") != "" {
		os.Exit(m.Run())
	}
	os.Exit(inMemory(m.Run))
}

func inMemory(run func() int) int {
	const memory, room = "/dev/shm", 2 << 30 // many times what they take
	if free, err := freeSpace(memory); err != nil || free < room {
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
