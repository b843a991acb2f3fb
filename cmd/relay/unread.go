package main

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Bounds of unread: the number of queued texts, and how long close waits.
const (
	unreadTexts = 1024
	unreadFlush = time.Second
)

// unread is a queue of output. The tunnel must not wait for a reader: the reader of a pipe may have gone or
// stopped reading, and a terminal may be stopped. Text that comes while the queue is full is dropped.
type unread struct {
	texts chan []byte
	over  chan struct{} // closed by close
	ended chan struct{}
}

func newUnread(to io.Writer) *unread {
	u := &unread{texts: make(chan []byte, unreadTexts), over: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(u.ended)
		for {
			select {
			case text := <-u.texts:
				_, _ = to.Write(text) // a failed write cannot be reported: the output has no reader
				continue
			default:
			}
			select {
			case text := <-u.texts:
				_, _ = to.Write(text)
			case <-u.over:
				return
			}
		}
	}()
	return u
}

// Write queues a text. If the queue is full, it drops the text.
func (u *unread) Write(text []byte) (int, error) {
	select {
	case u.texts <- bytes.Clone(text):
	default:
	}
	return len(text), nil
}

// close waits until the queued output is written, for at most unreadFlush.
func (u *unread) close() {
	close(u.over)
	select {
	case <-u.ended:
	case <-time.After(unreadFlush):
	}
}

// survivePipes keeps the process alive after the reader of its output has gone. By default, a Go program ends
// on SIGPIPE in that case.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// outlive puts a queue in front of stdout and stderr for the rest of the program: the tunnel continues when
// their readers stop or leave.
func (p *program) outlive() (stdout io.Writer) {
	survivePipes()
	out, errs := newUnread(p.out), newUnread(p.err)
	p.err, p.flush = errs, func() { out.close(); errs.close() }
	return out
}
