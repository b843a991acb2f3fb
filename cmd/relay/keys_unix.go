//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// lookAgain is how often a background job looks whether it has come to the front:
// a shell says so only to a job that was stopped.
const lookAgain = 300 * time.Millisecond

// keyboard reads single keys from a terminal. It holds the terminal's modes only
// while this program is in the foreground, and puts them back at every way out that
// a program can see.
type keyboard struct {
	in     *os.File
	con    *console
	signal chan os.Signal
	resume chan struct{} // we are in the foreground again; capacity 1
	done   chan struct{} // closed when run has ended
	cancel context.CancelFunc

	mu     sync.Mutex
	before *unix.Termios // nil = the terminal is not held
}

// openKeyboard gives the bytes that are typed to typed, one read a call, until ctx
// ends or close is called. It gives nil when stdin is no terminal.
func openKeyboard(ctx context.Context, in *os.File, con *console, typed func([]byte)) *keyboard {
	if !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &keyboard{
		in: in, con: con, cancel: cancel,
		signal: make(chan os.Signal, 8), resume: make(chan struct{}, 1), done: make(chan struct{}),
	}
	// In the background a read fails instead of stopping the tunnel.
	signal.Ignore(syscall.SIGTTIN)
	catch := []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // else this is a run under nohup
		catch = append(catch, syscall.SIGHUP)
	}
	signal.Notify(k.signal, catch...)
	k.grab()
	go k.run(ctx)
	go k.read(ctx, typed)
	return k
}

// close puts the terminal back. It may be called again, and on nil.
func (k *keyboard) close() {
	if k == nil {
		return
	}
	k.cancel()
	<-k.done
}

// run answers signals until ctx ends. That is also what the first Ctrl+C does: the
// terminal is in order before a second one can kill the program.
func (k *keyboard) run(ctx context.Context) {
	defer close(k.done)
	defer k.release()
	defer signal.Stop(k.signal)
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if !k.held() {
				k.grab()
			}
		case s := <-k.signal:
			switch s {
			case syscall.SIGWINCH:
				k.con.resized()
			case syscall.SIGTSTP:
				k.release()
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			case syscall.SIGCONT:
				k.grab()
			default:
				k.release()
				signal.Reset(s)
				_ = unix.Kill(unix.Getpid(), s.(syscall.Signal))
			}
		}
	}
}

// foreground tells whether the terminal is ours: a background job that changed its
// modes would be stopped, and would take them from whoever has it.
func (k *keyboard) foreground() bool {
	group, err := unix.IoctlGetInt(int(k.in.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (k *keyboard) held() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.before != nil
}

// grab switches to single keys, without echo. Ctrl+C and Ctrl+Z stay signals.
func (k *keyboard) grab() {
	k.mu.Lock()
	defer k.mu.Unlock()
	fd := int(k.in.Fd())
	if !k.foreground() {
		return
	}
	now, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return
	}
	single := *now
	single.Lflag &^= unix.ICANON | unix.ECHO
	single.Cc[unix.VMIN], single.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, setTermios, &single); err != nil {
		return
	}
	if k.before == nil { // else somebody stopped us in a way that we did not see
		k.before = now
	}
	k.con.wake()
	k.con.send(pasteOn)
	select {
	case k.resume <- struct{}{}:
	default:
	}
}

// release gives the terminal back as it was.
func (k *keyboard) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.before == nil {
		return
	}
	if k.foreground() {
		k.con.send(pasteOff)
		_ = unix.IoctlSetTermios(int(k.in.Fd()), setTermios, k.before)
	}
	k.con.sleep()
	k.before = nil
}

// read reads until the terminal is gone. It ends with the program: nothing can
// interrupt a read of a terminal.
func (k *keyboard) read(ctx context.Context, typed func([]byte)) {
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		n, err := k.in.Read(buf)
		if n > 0 && ctx.Err() == nil {
			typed(buf[:n])
		}
		switch {
		case errors.Is(err, syscall.EIO): // in the background
			select {
			case <-k.resume:
			case <-ctx.Done():
			}
		case err != nil:
			return
		}
	}
}
