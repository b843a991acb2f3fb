package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTheWholeLoop runs the demo with a relayd of this tree; run fails where the replay is
// not the same as the original.
func TestTheWholeLoop(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "relayd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/relayd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run(t.Context(), program, true); err != nil {
		t.Fatal(err)
	}
}
