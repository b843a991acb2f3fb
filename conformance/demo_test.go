package conformance

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"relay/relaytest"
)

// TestDemo runs scripts/demo, which exits with an error if one of its steps fails, and checks the output.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "../scripts/demo", "once")
	cmd.Env = append(os.Environ(), "BIN="+relaytest.Programs(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"the target's own answer: {\"id\":\"evt_1RelayDemo\"", "attempt 2 delivered, status 200; same bytes as the original: true"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("there is no %q in %s", want, out)
		}
	}
}
