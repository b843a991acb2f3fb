package client

import (
	"net"
	"syscall"
	"testing"
)

// held is an address that nobody listens on until the test does: its port is bound by
// a connection that lets it be listened on, which keeps it from everybody who asks for
// any free port.
func held(t *testing.T) (addr string, target Target) {
	t.Helper()
	other, _ := local(t)
	d := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			if ctlErr := c.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
			}); ctlErr != nil {
				return ctlErr
			}
			return err
		},
	}
	conn, err := d.Dial("tcp", other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if target, err = PortTarget(conn.LocalAddr().(*net.TCPAddr).Port); err != nil {
		t.Fatal(err)
	}
	return conn.LocalAddr().String(), target
}

func TestLocalServerDownAndUpIsToldOnce(t *testing.T) {
	addr, target := held(t)
	conn, run := online(t, target)
	for range 5 {
		through(t, conn)
	}
	newsOf(t, run, LocalDown)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	newsOf(t, run, LocalUp)
	for range 3 {
		go func() {
			if c, err := ln.Accept(); err == nil {
				c.Close()
			}
		}()
		through(t, conn)
	}
	ln.Close()
	through(t, conn)
	newsOf(t, run, LocalDown)
	if len(run.local) > 0 {
		t.Errorf("and %+v", <-run.local)
	}
}
