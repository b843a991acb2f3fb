package relaytest

import (
	"bytes"
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Buffer collects the output of a process or a log; it may be read while the process runs.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Tail returns the last n bytes of a text, for the log of a failed test.
func Tail(text string, n int) string {
	if len(text) > n {
		return "…" + text[len(text)-n:]
	}
	return text
}

// Process is a running program.
type Process struct {
	Cmd      *exec.Cmd
	In       io.WriteCloser
	Out, Err *Buffer // output of the process; both are the same buffer unless StartSeparate has started it
	ended    chan struct{}
}

// StartSeparate is like Start, with separate buffers for stdout and stderr.
func StartSeparate(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	errs := &Buffer{}
	cmd.Stderr = errs
	p := Start(t, cmd)
	p.Err = errs
	return p
}

// Start starts cmd and collects its stdout and stderr, except for one that is already set in cmd. If the test fails,
// the output is logged. The process is killed at the end of the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	out := &Buffer{}
	p := &Process{Cmd: cmd, Out: out, Err: out, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = out
	}
	if cmd.Stdin == nil {
		var err error
		if p.In, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // ProcessState has the exit code
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Kill()
		if !t.Failed() {
			return
		}
		if text := Tail(out.String(), 4000); text != "" {
			t.Logf("%v printed:\n%s", cmd.Args, text)
		}
		if text := Tail(p.Err.String(), 4000); p.Err != out && text != "" {
			t.Logf("%v printed on stderr:\n%s", cmd.Args, text)
		}
	})
	return p
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Code waits for the end of the process and returns its exit code. A process that runs for longer than
// Patience(limit) fails the test.
func (p *Process) Code(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience(limit)):
		t.Fatalf("still running after %v: %v\n%s", Patience(limit), p.Cmd.Args, Tail(p.Out.String(), 2000))
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Kill ends the process with SIGKILL and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // the process may have ended already
	<-p.ended
}
