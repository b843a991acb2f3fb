package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestAlertRules: the tests of the alert rules pass in promtool. Each alert has a test in which it fires and
// a test in which it is silent.
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
	rules, err := os.ReadFile(filepath.Join(folder, "relay.rules.yml"))
	tests, testsErr := os.ReadFile(filepath.Join(folder, "relay.rules.test.yml"))
	if err != nil || testsErr != nil {
		t.Fatal(err, testsErr)
	}
	names := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(rules, -1)
	if len(names) == 0 {
		t.Fatal("no alert was found")
	}
	for _, m := range names {
		for what, form := range map[string]string{
			"fires": `alertname: %s\n +exp_alerts:\n +- exp_labels:`, "is silent": `alertname: %s, exp_alerts: \[\] \}`,
		} {
			if !regexp.MustCompile(fmt.Sprintf(form, m[1])).Match(tests) {
				t.Errorf("no test shows when %s %s", m[1], what)
			}
		}
	}
}
