package relaytest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// FreeAddr returns an unused loopback address for a program that needs its address in advance. The address is
// reserved for the test; see ReserveAddr.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, release, err := ReserveAddr()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// ReserveAddr returns an unused loopback address. Its port is below the ports that the system gives to outgoing
// connections and to listeners on port 0. One of these could take the port before the program listens, or during its
// restart. No other call returns the port until the returned function release is called, even in another test process:
// a UDP socket at another loopback address marks the port as taken, if the system has that address.
func ReserveAddr() (addr string, release func(), err error) {
	for range 1000 {
		port := 10_000 + (int64(os.Getpid())*199+ports.Add(1))%20_000
		mark, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.2:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if nobodyListens(addr) {
			return addr, func() {
				if mark != nil {
					_ = mark.Close()
				}
			}, nil
		}
		if mark != nil {
			_ = mark.Close()
		}
	}
	return "", nil, errors.New("found no free port")
}

// nobodyListens reports whether an address is free. It keeps other goroutines from starting a process during
// the check. Otherwise the new process would inherit the listener for a moment, and the address would stay in
// use.
func nobodyListens(addr string) bool {
	if runtime.GOOS == "linux" { // elsewhere, net.Listen takes this lock
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	ln, err := net.Listen("tcp", addr)
	return err == nil && ln.Close() == nil
}

var ports atomic.Int64 // number of tried ports

// SocketDir creates a folder for Unix sockets and removes it at the end of the test. The path is short for
// any TMPDIR, because the address of a Unix socket is limited to about 100 bytes.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "relay-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Line is a TCP proxy in front of a server. Tests can cut it, hold its traffic, delay it and redirect
// it to another server.
type Line struct {
	Addr string

	to    atomic.Pointer[target]
	delay atomic.Int64 // delay of each packet, in ns
	mu    sync.Mutex
	conns map[net.Conn]struct{} // open connections, both ends
	held  chan struct{}         // closed when Hold ends; nil while packets pass
}

type target struct{ network, address string }

// NewLine starts a line to an address; network and address are those of net.Dial.
func NewLine(t testing.TB, network, address string) *Line {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{Addr: ln.Addr().String(), conns: map[net.Conn]struct{}{}}
	l.Lead(network, address)
	t.Cleanup(func() {
		_ = ln.Close()
		l.Release()
		l.Cut()
	})
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			go l.carry(near)
		}
	}()
	return l
}

// Lead redirects new connections to another server. Open connections stay as they are.
func (l *Line) Lead(network, address string) { l.to.Store(&target{network, address}) }

// Delay delays every packet in both directions from now on, like a long line: a later packet does not wait
// until an earlier one has arrived.
func (l *Line) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Hold stops all traffic in both directions until Release, including the end of a connection, like a network
// that drops every packet. Bytes that are sent in this time arrive after Release.
func (l *Line) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

// Release lets held traffic pass again.
func (l *Line) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// await blocks while Hold is in force, until Release.
func (l *Line) await() {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
}

// Cut closes every connection at both ends. New connections are accepted.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *Line) carry(near net.Conn) {
	l.await()
	to := l.to.Load()
	far, err := net.Dial(to.network, to.address)
	if err != nil {
		_ = near.Close()
		return
	}
	l.mu.Lock()
	l.conns[near], l.conns[far] = struct{}{}, struct{}{}
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.copy(near, far) })
	both.Go(func() { l.copy(far, near) })
	both.Wait()
	l.mu.Lock()
	delete(l.conns, near)
	delete(l.conns, far)
	l.mu.Unlock()
}

// copy passes on the bytes of one direction, from the second argument to the first, with the effects of Delay
// and Hold. When one of the two connections has ended, it closes both.
func (l *Line) copy(to, from net.Conn) {
	type packet struct {
		data []byte
		due  time.Time
	}
	under := make(chan packet, 4096)
	go func() {
		defer func() {
			l.await()
			_, _ = to.Close(), from.Close()
		}()
		for p := range under {
			time.Sleep(time.Until(p.due))
			l.await()
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		_ = from.Close()
		for range under { // receives what is left, so that the loop below never blocks on a full channel
		}
	}()
	defer close(under)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			under <- packet{b[:n], time.Now().Add(time.Duration(l.delay.Load()))}
		}
		if err != nil {
			return
		}
	}
}
