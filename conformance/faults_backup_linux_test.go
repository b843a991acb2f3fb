package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"relay/relaytest"
)

// TestFaultBackupDiskFull writes a backup to a disk that is too small. The command names the full disk and
// leaves no file on it.
func TestFaultBackupDiskFull(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.alias("big")
	for i := range 8 {
		if status, body, _ := r.call("big", fmt.Sprintf("/%d", i), strings.Repeat("x", 1<<20)); status != 202 {
			t.Fatalf("queued: %d %s", status, body)
		}
	}
	disk := smallDisk(t, 4<<20)
	cmd := exec.Command(relaytest.Program(t, "relayd"), "backup", filepath.Join(disk, "relay.db"))
	cmd.Env = r.env()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is not enough space for the backup in "+disk) {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestBackupIsSynced traces relayd backup: it syncs the file of the backup before it gives the file its name,
// and syncs the folder after that.
func TestBackupIsSynced(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.alias("one")
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	cmd := exec.Command("strace", "-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,linkat", "-o", trace,
		relaytest.Program(t, "relayd"), "backup", filepath.Join(dir, "relay.db"))
	cmd.Env = r.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	before, after, named := strings.Cut(string(text), "linkat(")
	if !named || !regexp.MustCompile(`sync\(\d+<`+regexp.QuoteMeta(dir)+`/relay\.db\.part-\d+>`).MatchString(before) || !strings.Contains(after, "<"+dir+">") {
		t.Errorf("calls of the backup:\n%s", text)
	}
}
