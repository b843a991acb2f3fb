package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/record"
)

// mirror is a local server that answers with the received body and records the hash of each body.
type mirror struct {
	mu     sync.Mutex
	hashes []string
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.hashes = append(m.hashes, hexSum(body))
	m.mu.Unlock()
	_, _ = w.Write(body)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestBulk: 2 MiB with a length and 1 MiB in chunks pass completely in both directions, and are the same on a
// replay.
func TestBulk(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		m := &mirror{}
		target := httptest.NewServer(m)
		t.Cleanup(target.Close)
		h.tunnel("demo", strings.TrimPrefix(target.URL, "http://"))
		var sent []string
		for i, want := range []string{hexSum(noise), hexSum(noise[:1<<20])} {
			size, body := len(noise), io.Reader(bytes.NewReader(noise))
			if i == 1 {
				size, body = 1<<20, io.MultiReader(bytes.NewReader(noise[:1<<20])) // http.NewRequest does not know the length of this reader, so the request is sent in chunks
			}
			sent = append(sent, want, want)
			begun := time.Now()
			res, err := h.client().Post(h.app.site.AliasURL("demo")+"/bulk", "application/octet-stream", body)
			if err != nil {
				t.Fatal(err)
			}
			back, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || hexSum(back) != want {
				t.Fatalf("came back as %d bytes, %v", len(back), err)
			}
			t.Logf("%d MiB both ways in %v", size>>20, time.Since(begun))
			id := h.newest("demo").ID
			var e record.Event
			if status := h.api(http.MethodPost, "/events/"+id+"/replay", "", &e); status != http.StatusOK {
				t.Fatalf("replay answered %d", status)
			}
			if e.Request.Body.SHA256 != want || e.Response.Body.SHA256 != want || e.Response.Body.Size != int64(size) {
				t.Errorf("record of request %d: %+v %+v", i, e.Request.Body.SHA256, e.Response.Body.SHA256)
			}
			var stored []byte
			if h.api(http.MethodGet, "/events/"+id+"/attempts/2/response.body", "", &stored); hexSum(stored) != want {
				t.Errorf("stored response of the replay is another one: %d bytes", len(stored))
			}
			if last := e.Attempts[1]; last.Identical == nil || !*last.Identical {
				t.Errorf("replay %d was not identical", i)
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if !slices.Equal(m.hashes, sent) {
			t.Errorf("arrived as %v, want %v", m.hashes, sent)
		}
	})
}
