package session

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"relay/link"
	"relay/relaytest"
)

// TestNoAPIAfterTheSession: a dial of a command's HTTP transport that begins after the end of the session
// fails. Such a dial must not start goroutines, because the session does not wait for them.
func TestNoAPIAfterTheSession(t *testing.T) {
	t.Parallel()
	s := &session{of: New(Options{Used: func(int) {}})}
	s.of.finished(s)
	if conn, err := s.OpenAPI(); err == nil {
		t.Error("the API was opened for a session that has ended")
		conn.Close()
	}
}

// TestPanicAfterTheEnd: a panic in a goroutine that a session starts after the end of its connection is
// recovered and does not end the process.
func TestPanicAfterTheEnd(t *testing.T) {
	t.Parallel()
	pipe, _ := net.Pipe()
	conn := link.New(pipe, link.Options{Workers: link.NewWorkers(), Log: slog.New(slog.DiscardHandler)})
	conn.Close(link.Stopped)
	<-conn.Done()
	s, ended := &session{of: New(Options{Conn: conn, Used: func(int) {}})}, make(chan struct{})
	s.running.Add(1)
	s.Go("test", func() {
		defer close(ended)
		panic("boom")
	})
	<-ended
	relaytest.Until(t, 30*time.Second, "the end", func() bool { return s.running.Load() == 1 })
}
