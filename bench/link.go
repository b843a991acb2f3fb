package main

import (
	"net"
	"time"
)

// link is a TCP proxy that delivers every byte a fixed time after it came, in both
// directions. It stands for a network with that delay each way.
type link struct {
	ln    net.Listener
	to    string
	delay time.Duration
}

func newLink(to string, delay time.Duration) (*link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{ln: ln, to: to, delay: delay}
	go l.accept()
	return l, nil
}

func (l *link) addr() string { return l.ln.Addr().String() }

func (l *link) close() { _ = l.ln.Close() }

func (l *link) accept() {
	for {
		near, err := l.ln.Accept()
		if err != nil {
			return
		}
		go func() {
			time.Sleep(2 * l.delay) // of the handshake of TCP
			far, err := net.Dial("tcp", l.to)
			if err != nil {
				_ = near.Close()
				return
			}
			go l.carry(far, near)
			l.carry(near, far)
		}()
	}
}

// carry copies from one connection to the other until the first one ends.
func (l *link) carry(to, from net.Conn) {
	type packet struct {
		due  time.Time
		data []byte
	}
	packets := make(chan packet, 4096)
	go func() {
		for p := range packets {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	}()
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			packets <- packet{time.Now().Add(l.delay), buf[:n]}
		}
		if err != nil {
			close(packets)
			return
		}
	}
}
