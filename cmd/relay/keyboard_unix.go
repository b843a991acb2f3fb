//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// backgroundPoll is the interval at which a background job checks whether it is in the foreground now. No
// signal tells it: a shell sends SIGCONT only to a stopped job.
const backgroundPoll = 300 * time.Millisecond

// keyboard reads single keys from a terminal. It changes the modes of the terminal only
// while this program is in the foreground, and restores them when the program stops or
// ends, except by SIGKILL.
type keyboard struct {
	tty     int
	signals chan os.Signal

	mu     sync.Mutex
	before *unix.Termios // nil while the modes are unchanged
	closed bool
}

// openKeyboard calls press for each typed key, until close. It ignores every read of more than one byte,
// because such a read is pasted text.
func openKeyboard(in *os.File, press func(key byte)) *keyboard {
	k := &keyboard{tty: int(in.Fd()), signals: make(chan os.Signal, 8)}
	signal.Ignore(syscall.SIGTTIN) // a read in the background fails, instead of stopping the tunnel
	catch := []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup SIGHUP is ignored, and must stay so
		catch = append(catch, syscall.SIGHUP)
	}
	signal.Notify(k.signals, catch...)
	k.singleKeys()
	go k.handleSignals()
	go k.read(in, press)
	return k
}

// close restores the terminal. k may be nil.
func (k *keyboard) close() {
	if k == nil {
		return
	}
	signal.Stop(k.signals)
	k.restore(true)
}

// handleSignals restores the modes of the terminal before a signal stops or ends the
// program.
func (k *keyboard) handleSignals() {
	for s := range k.signals {
		switch s {
		case syscall.SIGCONT:
			k.singleKeys()
		case syscall.SIGTSTP:
			k.restore(false)
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		default:
			k.restore(true)
			signal.Reset(s)
			_ = unix.Kill(unix.Getpid(), s.(syscall.Signal))
		}
	}
}

// foreground reports whether this program may change the modes of the terminal. The system stops a background
// job that tries to.
func (k *keyboard) foreground() bool {
	group, err := unix.IoctlGetInt(k.tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// singleKeys sets the terminal modes to pass on each key at once, without echo. Ctrl+C and Ctrl+Z remain
// signals.
func (k *keyboard) singleKeys() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.before != nil || !k.foreground() {
		return
	}
	before, err := unix.IoctlGetTermios(k.tty, getTermios)
	if err != nil {
		return
	}
	single := *before
	single.Lflag &^= unix.ICANON | unix.ECHO
	single.Cc[unix.VMIN], single.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(k.tty, setTermios, &single) == nil {
		k.before = before
	}
}

// restore sets the modes that the terminal had before singleKeys. If ends is true, the program is about to end,
// and singleKeys does nothing from now on.
func (k *keyboard) restore(ends bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.before != nil && k.foreground() {
		_ = unix.IoctlSetTermios(k.tty, setTermios, k.before)
	}
	k.before, k.closed = nil, ends
}

// read reads until the terminal is closed. Nothing can interrupt the read of a terminal, so the reading
// goroutine ends with the program.
func (k *keyboard) read(in *os.File, press func(key byte)) {
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf)
		if n == 1 {
			press(buf[0])
		}
		switch {
		case errors.Is(err, syscall.EIO): // this job is in the background
			time.Sleep(backgroundPoll)
			k.singleKeys()
		case err != nil:
			return
		}
	}
}
