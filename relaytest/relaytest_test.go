package relaytest

import (
	"crypto/sha256"
	"io"
	"net"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestLimitGrowsWithTheMachine: a time limit grows with the load that other processes cause.
func TestLimitGrowsWithTheMachine(t *testing.T) {
	Slowdown(time.Now()) // starts the measurement of the load
	var stop atomic.Bool
	for range 8 * runtime.GOMAXPROCS(0) {
		go func() {
			for block := make([]byte, 1<<20); !stop.Load(); {
				sha256.Sum256(block)
			}
		}()
	}
	begun := time.Now()
	time.Sleep(time.Second)
	stop.Store(true)
	factor, longest := Slowdown(begun)
	if factor < 1.5 || longest <= 0 {
		t.Errorf("beside eight busy goroutines a core the machine is slower by %.2f, at most %v", factor, longest)
	}
	if limit := Limit(time.Second, begun); limit < 3*time.Second {
		t.Errorf("a second may take only %v", limit)
	}
	if limit := Limit(time.Second, time.Now().Add(time.Hour)); limit < 2*time.Second {
		t.Errorf("a second may take only %v", limit)
	}
}

// TestLine: a line delays bytes, can lead to another server, and can be cut.
func TestLine(t *testing.T) {
	t.Parallel()
	says := func(text string) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, text)
			}
		}()
		return ln.Addr().String()
	}
	l := NewLine(t, "tcp", says("a"))
	hear := func() (net.Conn, string) {
		c, err := net.Dial("tcp", l.Addr)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		return c, string(b)
	}
	first, heard := hear()
	if heard != "a" {
		t.Errorf("heard %q", heard)
	}
	l.Lead("tcp", says("b"))
	l.Delay(50 * time.Millisecond)
	begun := time.Now()
	if _, heard = hear(); heard != "b" || time.Since(begun) < 50*time.Millisecond {
		t.Errorf("heard %q after %v", heard, time.Since(begun))
	}
	l.Cut()
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Log(err) // a reset is also an end
	}
}

// TestProcess: a Process has the output and the exit code of its program.
func TestProcess(t *testing.T) {
	t.Parallel()
	p := StartSeparate(t, exec.Command("sh", "-c", "read x; echo out $x; echo err >&2; exit 3"))
	if p.HasEnded() {
		t.Error("it ended before it was told to")
	}
	_, _ = io.WriteString(p.In, "word\n")
	if code := p.Code(t, 10*time.Second); code != 3 || p.Out.String() != "out word\n" || p.Err.String() != "err\n" {
		t.Errorf("exit %d, %q and %q", code, p.Out, p.Err)
	}
}

// TestFreeAddr: no two addresses are the same.
func TestFreeAddr(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 200 {
		addr := FreeAddr(t)
		if seen[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		seen[addr] = true
	}
}
