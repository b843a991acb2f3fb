package conformance

import (
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"relay/relaytest"
)

// h2Cases is how many of the 145 cases of h2spec the base host has to pass.
const h2Cases = 141

// TestHTTP2: the base host passes at least h2Cases cases of h2spec over TLS.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	r := newRelay(t, "", "RELAY_TLS=files")
	cert, key := relaytest.WriteCertificate(t, r.dir, "localhost")
	https := relaytest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(https)
	r.extra = append(r.extra, "RELAY_TLS_CERT="+cert, "RELAY_TLS_KEY="+key, "RELAY_HTTPS_ADDR="+https, "RELAY_BASE_URL=https://localhost:"+port)
	r.start()
	var out []byte
	var sum [][]byte
	for _, patience := range []string{"4", "20"} { // on a busy machine, a case may need more time
		var err error
		out, err = exec.Command("go", "tool", "h2spec", "-t", "-k", "-h", "localhost", "-p", port, "--timeout", patience).CombinedOutput()
		sum = regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`).FindSubmatch(out)
		if sum == nil {
			t.Fatalf("h2spec: %v\n%s", err, out)
		}
		if passed, _ := strconv.Atoi(string(sum[2])); passed >= h2Cases {
			break
		}
	}
	t.Logf("h2spec: %s", sum[0])
	_, failures, _ := strings.Cut(string(out), "Failures:")
	for _, line := range regexp.MustCompile(`(?m)^\s*× (.*)$`).FindAllStringSubmatch(failures, -1) {
		t.Logf("not passed: %s", line[1])
	}
	if passed, _ := strconv.Atoi(string(sum[2])); passed < h2Cases {
		t.Errorf("%d cases passed, want at least %d", passed, h2Cases)
	}
}
