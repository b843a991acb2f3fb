//go:build former

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestChainOfVersions opens one store with the programs of earlier versions, oldest first, and then with this
// version. Each program records a request and returns the requests of the earlier programs with the same
// bytes. This version delivers all requests. RELAY_CHAIN names the programs; scripts/versions builds them and
// runs the test.
func TestChainOfVersions(t *testing.T) {
	programs := strings.Fields(os.Getenv("RELAY_CHAIN"))
	if len(programs) < 3 {
		t.Fatal("RELAY_CHAIN names fewer than three programs; run scripts/versions")
	}
	stores(t, func(t *testing.T, databaseURL string) {
		r := newRelay(t, databaseURL)
		raws := map[string][]byte{}
		for i, program := range append(programs, "") {
			r.stop(syscall.SIGTERM)
			r.program = program
			r.start()
			if i == 0 {
				cmd := exec.Command(program, "token", "add", "--user", "admin")
				cmd.Env = r.env()
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("token add: %v: %s", err, out)
				}
				r.token = strings.TrimSpace(string(out))
				r.alias("hooks")
			}
			path := fmt.Sprintf("/by-version-%d", i)
			if status, body, _ := r.call("hooks", path, strings.Repeat(path+"\r\n\x00\xff", 1000)); status != 202 {
				t.Fatalf("version %d answered %d %s", i, status, body)
			}
			list := r.events("hooks", "")
			if len(list) != i+1 {
				t.Errorf("version %d lists %d events", i, len(list))
			}
			for _, e := range list {
				raw := r.must(200, "GET", "/events/"+e.ID+"/request.raw", nil)
				if earlier, known := raws[e.ID]; known && !bytes.Equal(raw, earlier) {
					t.Errorf("version %d gives %s as %.200q, and not as %.200q", i, e.ID, raw, earlier)
				}
				raws[e.ID] = raw
			}
		}
		r.tunnel("hooks", localServer(t))
		r.must(202, "POST", "/aliases/hooks/replay-queued", nil)
		r.waitFor(20*time.Second, "all that was queued to be delivered", func() bool {
			return len(r.events("hooks", "&state=delivered")) == len(programs)+1
		})
	})
}
