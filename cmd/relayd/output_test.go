package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lossy returns an output that reports lost lines in a separate line, as the log does.
func lossy(to io.Writer) *output {
	o := newOutput(to)
	o.note = func(lines int64) []byte { return []byte(notWritten(lines) + "\n") }
	return o.start()
}

// TestOutputThatTakesNothing: neither writers nor the end of the program wait for a reader that does not
// read. When the reader reads again, a line says how many lines are missing at this place.
func TestOutputThatTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // nothing reads from r yet
		o := lossy(w)
		line := []byte(strings.Repeat("x", 1023) + "\n")
		const sent = 3 * outputBytes / 1024
		begun := time.Now()
		_, _ = o.Write(line)
		synctest.Wait() // the text is being written, so the queue is empty
		for range sent - 1 {
			if n, err := o.Write(line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
		time.Sleep(2*outputSlow + time.Second)
		if waited := time.Since(begun); waited != 2*outputSlow+time.Second || !o.blocked() {
			t.Errorf("writing took %v; blocked %v", waited, o.blocked())
		}
		all := make(chan []byte)
		go func() { text, _ := io.ReadAll(r); all <- text }()
		synctest.Wait()
		if o.blocked() {
			t.Error("it is still blocked while somebody reads")
		}
		_, _ = o.Write([]byte("after\n"))
		o.close()
		_ = w.Close()
		text := <-all
		lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		written := len(lines) - 2
		if dropped := int(o.lost()); written+dropped != sent || dropped == 0 {
			t.Errorf("%d lines written, %d dropped, %d sent", written, dropped, sent)
		}
		if want := fmt.Sprintf("%d lines were not written", o.lost()); string(lines[written]) != want || string(lines[written+1]) != "after" {
			t.Errorf("it ends with %q, %q; want %q before after", lines[written], lines[written+1], want)
		}
	})
}

// TestOutputEndsUnread: close waits only a bounded time for a reader that never reads.
func TestOutputEndsUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := lossy(w)
		_, _ = o.Write([]byte("unread\n"))
		begun := time.Now()
		o.close()
		if took := time.Since(begun); took != outputFlush {
			t.Errorf("the end took %v", took)
		}
		_, _ = o.Write([]byte("late\n")) // a goroutine may write after close
		if o.lost() != 1 {
			t.Errorf("%d lines counted as dropped, want the late one", o.lost())
		}
		_ = r.Close()
		<-o.ended
	})
}

// faulty is a writer whose first writes fail: as many as fails says, each after as many bytes as part says.
type faulty struct {
	bytes.Buffer
	fails, part int
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.fails > 0 {
		f.fails--
		n, _ := f.Buffer.Write(p[:min(f.part, len(p))])
		return n, errors.New("no space left on device")
	}
	return f.Buffer.Write(p)
}

// TestOutputAfterErrors: a destination that fails for a while is tried again even without a new line. It gets
// a note about missing lines, and a torn line does not merge with the next line.
func TestOutputAfterErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		part int
		want string
	}{
		"nothing taken": {0, "2 lines were not written\nthree\n"},
		"torn":          {2, "on\n1\n2 lines were not written\nthree\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &faulty{fails: 2, part: tc.part}
				o := lossy(to)
				_, _ = o.Write([]byte("one\n"))
				_, _ = o.Write([]byte("two\n"))
				synctest.Wait()
				time.Sleep(3 * outputRetry)
				if o.blocked() || o.lost() != 2 {
					t.Errorf("blocked %v, %d lost", o.blocked(), o.lost())
				}
				_, _ = o.Write([]byte("three\n"))
				o.close()
				if to.String() != tc.want {
					t.Errorf("written %q, want %q", to.String(), tc.want)
				}
			})
		})
	}
}
