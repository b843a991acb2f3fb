package main

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of the queued output. A reader that is slow for a moment loses no output.
const (
	outputBytes = 256 << 10 // while the queue holds more than this, further texts are dropped
	outputRetry = time.Second
	// outputSlow is how long one write may take before the output counts as blocked.
	outputSlow = 2 * time.Second
	// outputFlush bounds the wait for queued output at the end of the program.
	outputFlush = time.Second
)

// output writes whole lines to a destination that may stop accepting them: a pipe whose reader has gone or
// has stopped reading, a stopped terminal, a full disk. Write only adds to the queue, so the server never
// waits for the destination. A text is dropped and counted if the queue is full or the write fails. One
// goroutine writes, until close.
type output struct {
	to io.Writer
	// note returns a line that says how many lines were not written. The line, which may be empty, is written
	// before the next text.
	note func(lines int64) []byte
	// told is called after the line of note has been written: the destination takes output again. err is the
	// error of the write that failed last; nil = the queue was full.
	told func(lines int64, err error)

	dropped atomic.Int64 // dropped lines since the start

	mu      sync.Mutex
	queue   []queuedText
	waiting int   // bytes in queue
	missing int64 // lines dropped since the last text was queued
	writing bool  // a text was taken from queue and is being written
	closed  bool
	wake    chan struct{} // holds one element if there may be something to write
	ended   chan struct{} // closed when the goroutine has ended

	failing atomic.Bool  // the last write failed
	since   atomic.Int64 // start of the current write in nanoseconds; 0 = none

	// The writing goroutine alone uses these fields.
	unsaid int64 // lines that were not written and that no line of note has reported yet
	err    error // error of the write that failed last; nil = the queue was full
	torn   bool  // whether the last write ended within a line
}

// queuedText is a text and the number of lines that were dropped just before it.
type queuedText struct {
	text    []byte
	missing int64
}

func newOutput(to io.Writer) *output {
	return &output{
		to: to, note: func(int64) []byte { return nil }, told: func(int64, error) {},
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// start starts the goroutine that writes. Set note and told before.
func (o *output) start() *output {
	go o.run()
	return o
}

// Write queues a text. If the queue is full, it drops and counts the text. It never fails and never waits.
func (o *output) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.waiting > outputBytes {
		lines := countLines(text)
		o.missing += lines
		o.dropped.Add(lines)
		return len(text), nil
	}
	o.queue = append(o.queue, queuedText{bytes.Clone(text), o.missing})
	o.waiting, o.missing = o.waiting+len(text), 0
	o.signal()
	return len(text), nil
}

func countLines(text []byte) int64 { return int64(max(bytes.Count(text, []byte("\n")), 1)) }

func (o *output) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes queued output until close, and then the rest of the queue.
func (o *output) run() {
	defer close(o.ended)
	for {
		next, more := o.next()
		o.unsaid += next.missing
		if next.text != nil {
			o.put(next.text)
			continue
		}
		var retry <-chan time.Time
		if o.unsaid > 0 && len(o.note(o.unsaid)) > 0 {
			o.put(nil) // the reader may read again although no new line comes
			retry = time.After(outputRetry)
		}
		if !more {
			return
		}
		select {
		case <-o.wake:
		case <-retry:
		}
	}
}

// next takes the oldest text. Without a text, it takes the number of dropped lines. more is false when the
// output is closed and the queue is empty.
func (o *output) next() (next queuedText, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = len(o.queue) > 0
	if !o.writing {
		next.missing, o.missing = o.missing, 0
		o.queue = nil
		return next, !o.closed
	}
	next = o.queue[0]
	o.queue[0] = queuedText{}
	o.queue = o.queue[1:]
	o.waiting -= len(next.text)
	return next, true
}

// put writes one text, preceded by a note about the lines that were dropped before it.
func (o *output) put(text []byte) {
	all := text
	if o.unsaid > 0 {
		all = append(o.note(o.unsaid), text...)
	}
	if o.torn {
		all = append([]byte("\n"), all...)
	}
	o.since.Store(time.Now().UnixNano())
	n, err := o.to.Write(all)
	o.since.Store(0)
	o.failing.Store(err != nil)
	if n > 0 {
		o.torn = all[min(n, len(all))-1] != '\n'
	}
	if err != nil {
		o.err = err
		if text != nil {
			lines := countLines(text)
			o.unsaid += lines
			o.dropped.Add(lines)
		}
		return
	}
	if o.unsaid > 0 {
		o.told(o.unsaid, o.err)
	}
	o.unsaid, o.err = 0, nil
}

// blocked reports whether lines cannot be written at the moment: writes fail, or a write takes too long.
func (o *output) blocked() bool {
	if o == nil {
		return false
	}
	since := o.since.Load()
	return o.failing.Load() || since != 0 && time.Since(time.Unix(0, since)) > outputSlow
}

// lost returns the number of lines that were not written.
func (o *output) lost() int64 {
	if o == nil {
		return 0
	}
	return o.dropped.Load()
}

// drain waits until all lines queued before the call are written, for at most the given time.
func (o *output) drain(most time.Duration) {
	deadline := time.Now().Add(most)
	for !o.isIdle() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
}

func (o *output) isIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) == 0 && !o.writing
}

// close writes the queued output and ends the goroutine. It waits at most outputFlush, because the
// reader may have stopped.
func (o *output) close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.closed = true
	o.signal()
	o.mu.Unlock()
	select {
	case <-o.ended:
	case <-time.After(outputFlush):
	}
}

// survivePipes keeps the process alive after the reader of stdout or stderr has gone. By default a write to
// such a pipe ends a Go program, even if SIGPIPE was ignored at its start. Child processes get SIGPIPE as
// usual.
func survivePipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
