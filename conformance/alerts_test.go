package conformance

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAlertRules: Prometheus takes the alert rules, and each one fires for what it is about and is
// silent beside it.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs("../deploy/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("promtool", "test", "rules", "relay.rules.test.yml")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
