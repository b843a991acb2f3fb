package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// TestHostileEventsStaySmallPages: for bodies and heads that are made to be expensive, a page has at most 3
// MiB, and takes at most 1 s of processor time and 64 MiB of memory. The test does not run in parallel,
// because it measures time and memory of the whole process.
func TestHostileEventsStaySmallPages(t *testing.T) {
	r := newFixture(t)
	send := func(kind, body string, more ...string) string {
		head := strings.Join(append(more, ""), "\r\n")
		return r.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", head, kind, len(body), body)).String()
	}
	lines := make([]string, 10_000)
	for i := range lines {
		lines[i] = fmt.Sprintf("a%d: b", i)
	}
	most := time.Second
	if relaytest.RaceEnabled() {
		// With the race detector, everything takes longer.
		most *= 5
	}
	for name, id := range map[string]string{
		"one line of 20 MB":      send("application/json", `{"a":"`+strings.Repeat("x", 20<<20)+`"}`),
		"100 000 levels":         send("application/json", strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)),
		"100 000 open levels":    send("application/json", strings.Repeat(`{"a":`, 100_000)),
		"300 000 items, 60 deep": send("application/json", strings.Repeat("[", 60)+strings.Repeat("1,", 300_000)+"1"+strings.Repeat("]", 60)),
		"gzip bomb of 128 MiB":   send("application/json", bomb(128<<20), "Content-Encoding: gzip"),
		"a million fields":       send("application/x-www-form-urlencoded", strings.Repeat("a=b&", 1_000_000)),
		"a query of 4 000":       r.send("GET /?" + strings.Repeat("a=b&", 4000) + " HTTP/1.1\r\nHost: hook.localhost\r\n\r\n").String(),
		"10 000 header lines":    send("text/plain", "x", lines...),
		"100 000 parts":          send("multipart/form-data; boundary=b", strings.Repeat("--b\r\n\r\n\r\n", 100_000)+"--b--\r\n"),
		"only escapes":           send("text/plain", strings.Repeat("\x1b[\u202e", 1<<20)),
		"NUL in 20 MB":           send("application/octet-stream", strings.Repeat("\x00", 20<<20)),
	} {
		page, took, memory := r.cost("/events/" + id)
		if name == "one line of 20 MB" && len(page) < 200<<10 {
			t.Error("nothing of a long string is shown")
		}
		t.Logf("%s: %d KiB in %v, %d MiB of memory", name, len(page)>>10, took, memory>>20)
		if len(page) > 3<<20 || took > most || memory > 64<<20 {
			t.Errorf("%s: a page of %d bytes after %v with %d MiB", name, len(page), took, memory>>20)
		}
	}
}

// cost fetches a page three times. It returns the lowest processor time of this process and the lowest number
// of allocated bytes.
func (r *fixture) cost(path string) (page string, best time.Duration, memory uint64) {
	best, memory = time.Hour, 1<<62
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := r.processorTime()
		page = r.get(path, 200)
		best = min(best, r.processorTime()-began)
		runtime.ReadMemStats(&after)
		memory = min(memory, after.TotalAlloc-before.TotalAlloc)
	}
	return page, best, memory
}

// processorTime returns the processor time of this process.
func (r *fixture) processorTime() time.Duration {
	r.t.Helper()
	var u syscall.Rusage
	must(r.t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bomb returns size zero bytes, compressed with gzip.
func bomb(size int) string {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	return out.String()
}
