package conformance

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// target is a local server on a raw socket: it records the exact bytes of each request and answers
// with the configured bytes.
type target struct {
	t    *testing.T
	addr string
	got  chan []byte // raw bytes of each request, in order of arrival

	mu     sync.Mutex
	reply  func(raw []byte) (answer []byte, shut bool) // answers the next requests; shut closes the connection after the answer
	script func(c net.Conn, br *bufio.Reader)          // if set, it handles whole connections, and reply is not used
}

func newTarget(t *testing.T) *target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tg := &target{t: t, addr: ln.Addr().String(), got: make(chan []byte, 64)}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go tg.serve(c)
		}
	}()
	return tg
}

// say sets the answer to the next requests. If shut is set, the connection is closed after the answer.
func (tg *target) say(answer string, shut bool) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	tg.script, tg.reply = nil, func([]byte) ([]byte, bool) { return []byte(answer), shut }
}

func (tg *target) run(script func(c net.Conn, br *bufio.Reader)) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	tg.script = script
}

func (tg *target) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReaderSize(c, 64<<10)
	for {
		if _, err := br.Peek(1); err != nil {
			return
		}
		tg.mu.Lock()
		script := tg.script
		tg.mu.Unlock()
		if script != nil {
			script(c, br)
			return
		}
		raw, err := readRaw(br)
		if err != nil {
			return
		}
		tg.mu.Lock()
		answer, shut := tg.reply(raw)
		tg.mu.Unlock()
		tg.got <- raw
		if _, err := c.Write(answer); err != nil || shut {
			return
		}
	}
}

// next returns the exact bytes of the next request.
func (tg *target) next() []byte {
	tg.t.Helper()
	select {
	case b := <-tg.got:
		return b
	case <-time.After(60 * time.Second):
		tg.t.Fatal("the local server got no request within 60 s")
		return nil
	}
}

// readRaw reads one request and returns its exact bytes. It does not use the program's own parser, because
// that parser may have an error.
func readRaw(br *bufio.Reader) ([]byte, error) {
	head, err := readHead(br)
	if err != nil {
		return nil, err
	}
	raw := head
	length, chunked := framing(head)
	switch {
	case chunked:
		body, err := readChunks(br)
		return append(raw, body...), err
	case length > 0:
		body := make([]byte, length)
		_, err := io.ReadFull(br, body)
		return append(raw, body...), err
	}
	return raw, nil
}

func readHead(br *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		line, err := br.ReadSlice('\n')
		head = append(head, line...)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return head, err
		}
		if bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			return head, nil
		}
	}
}

func framing(head []byte) (length int, chunked bool) {
	for _, line := range strings.Split(string(head), "\r\n")[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(name) {
		case "content-length":
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		case "transfer-encoding":
			chunked = true
		}
	}
	return length, chunked
}

func readChunks(br *bufio.Reader) ([]byte, error) {
	var raw []byte
	for {
		line, err := br.ReadString('\n')
		raw = append(raw, line...)
		if err != nil {
			return raw, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 64)
		if err != nil {
			return raw, err
		}
		if n == 0 {
			break
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(br, chunk); err != nil {
			return raw, err
		}
		raw = append(raw, chunk...)
	}
	for {
		line, err := br.ReadString('\n')
		raw = append(raw, line...)
		if err != nil || line == "\r\n" {
			return raw, err
		}
	}
}
