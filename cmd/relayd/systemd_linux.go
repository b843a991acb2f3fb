package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serviceManager talks to systemd, as sd_notify(3) and sd_listen_fds(3) describe. It reports readiness,
// status and signs of life. It leaves the listeners in systemd's file descriptor store, which passes them to
// the next process. The zero value has no systemd and does nothing.
type serviceManager struct {
	socket   string        // path in NOTIFY_SOCKET; "" = none
	watchdog time.Duration // longest silence before systemd ends the process; 0 = off
}

// newServiceManager reads the environment that systemd sets.
func newServiceManager(getenv func(string) string) *serviceManager {
	m := &serviceManager{socket: getenv("NOTIFY_SOCKET")}
	if usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && isThisProcess(getenv("WATCHDOG_PID")) {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	return m
}

// isThisProcess reports whether pid, the value of LISTEN_PID or WATCHDOG_PID, means this process; "" means every
// process.
func isThisProcess(pid string) bool { return pid == "" || pid == strconv.Itoa(os.Getpid()) }

// present reports whether systemd reads messages.
func (m *serviceManager) present() bool { return m.socket != "" }

// notifyWait is the longest wait for a reader of NOTIFY_SOCKET whose queue is full.
const notifyWait = time.Second

// notify sends the lines of a state, such as READY=1, and file descriptors.
func (m *serviceManager) notify(state string, fds ...int) error {
	if !m.present() {
		return nil
	}
	conn, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	defer func() { _ = syscall.Close(conn) }()
	// Without this limit, a start, a status message or a stop of relayd would wait for as long as the reader of
	// NOTIFY_SOCKET does not read.
	wait := syscall.NsecToTimeval(notifyWait.Nanoseconds())
	if err := syscall.SetsockoptTimeval(conn, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &wait); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	// A name that begins with @ is an abstract socket, in Go as in NOTIFY_SOCKET. EINTR makes the loop run at
	// least once.
	err = syscall.EINTR
	for began := time.Now(); err == syscall.EINTR && time.Since(began) < notifyWait; { // a signal interrupts the call
		err = syscall.Sendmsg(conn, []byte(state), rights, &syscall.SockaddrUnix{Name: m.socket}, 0)
	}
	if err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	return nil
}

// keep stores a listener under a name in systemd's file descriptor store.
func (m *serviceManager) keep(name string, ln net.Listener) error {
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	// Control is used because File().Fd() would set the shared socket to blocking mode.
	if cerr := raw.Control(func(fd uintptr) { err = m.notify("FDSTORE=1\nFDNAME="+name, int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// firstInherited is the first descriptor that systemd passes: SD_LISTEN_FDS_START.
const firstInherited = 3

// inherited returns the listeners that systemd passes to this process, by name.
func (m *serviceManager) inherited(getenv func(string) string) (map[string]net.Listener, error) {
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || !isThisProcess(getenv("LISTEN_PID")) || getenv("LISTEN_PID") == "" {
		return nil, nil
	}
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	list := map[string]net.Listener{}
	for i := range n {
		name := "unknown"
		if i < len(names) {
			name = names[i]
		}
		file := os.NewFile(uintptr(firstInherited+i), name)
		ln, err := net.FileListener(file) // FileListener duplicates the descriptor and sets close-on-exec
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("socket %s from systemd: %w", name, err)
		}
		if list[name] != nil {
			_ = ln.Close()
			continue
		}
		list[name] = ln
	}
	return list, nil
}
