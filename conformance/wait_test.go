package conformance

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// await calls GET /events with query in the background, and returns when relayd counts the call as waiting.
// The returned channel gets the body of the answer.
func (r *relayServer) await(query string) <-chan []byte {
	r.t.Helper()
	open := r.metric("relay_api_waits")
	got := make(chan []byte, 1)
	go func() {
		_, body := r.api("GET", "/events?"+query, nil)
		got <- body
	}()
	r.waitFor(20*time.Second, "the call to wait", func() bool { return r.metric("relay_api_waits") > open })
	return got
}

// TestWaitForAnEvent: a waiting call returns as soon as a matching event has arrived, and never returns an
// earlier event.
func TestWaitForAnEvent(t *testing.T) {
	stores(t, func(t *testing.T, databaseURL string) {
		r := startRelay(t, databaseURL)
		r.alias("hook")
		r.alias("other")
		r.call("hook", "/wanted", "before")
		<-time.After(5 * time.Millisecond) // the waits begin in a later millisecond than that of the event's id, so they ignore the event
		waits := []<-chan []byte{
			r.await("wait=60s&alias=hook&method=POST&path=/wanted"), r.await("wait=60s&path=/wanted&q=needle"), r.await("wait=60s&state=queued&alias=hook&path=/wanted"),
		}
		r.call("other", "/wanted", "another alias, and no word of it")
		r.call("hook", "/other", "needle in another path")
		began := time.Now()
		if status, body, _ := r.call("hook", "/wanted", "the needle"); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		var want string
		for i, wait := range waits {
			select {
			case body := <-wait:
				var page struct{ Data []struct{ ID, Path string } }
				r.decode(body, &page)
				if len(page.Data) != 1 || page.Data[0].Path != "/wanted" || i > 0 && page.Data[0].ID != want {
					t.Errorf("wait %d: %s", i, body)
				} else {
					want = page.Data[0].ID
				}
			case <-time.After(50 * time.Second):
				t.Fatalf("wait %d does not end", i)
			}
		}
		t.Logf("figure: three waits were answered %s after the webhook was sent", time.Since(began).Round(time.Millisecond))
		if body := r.must(200, "GET", "/events?wait=100ms&path=/wanted", nil); !bytes.Contains(body, []byte(`"data":[]`)) {
			t.Errorf("nothing came, and the answer is %s", body)
		}
	})
}

// TestExportedTestSendsWhatWasReceived captures a request, exports it as a test, runs the test, and compares
// the bytes.
func TestExportedTestSendsWhatWasReceived(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.alias("hook")
	sent := "PUT /x?a=\"b\" HTTP/1.1\r\nhOST: hook.localhost\r\nX-One:  1\r\nX-one: caf\xe9\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"00a;x=\"y\"\r\n0123\"'`\\\n\x00\r\n1\r\n\xff\r\n0\r\nX-Sum: 1\r\n\r\n"
	c := r.dial()
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	}
	id := r.events("hook", "")[0].ID
	raw := r.must(200, "GET", "/events/"+id+"/request.raw", nil)
	if string(raw) != sent {
		t.Fatalf("request.raw is %q", raw)
	}
	file := filepath.Join(t.TempDir(), "test_event.py")
	if err := os.WriteFile(file, r.must(200, "GET", "/events/"+id+"/export?format=python", nil), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, len(sent))
		n, _ := io.ReadFull(c, b)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		got <- b[:n]
	}()
	cmd := exec.Command(python, file)
	cmd.Env = append(os.Environ(), "RELAY_TEST_ADDR="+ln.Addr().String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if b := <-got; string(b) != sent {
		t.Errorf("sent %q", b)
	}
}
