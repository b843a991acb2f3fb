//go:build unix

package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill ends the server and every process of its connections at once, with SIGKILL. The kernel keeps
// their writes, synced or not: this simulates a crash of Postgres, not a power loss. Restart starts
// the server again on its data.
func (s *Server) Kill() error {
	pids, err := s.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.Stop() // ends only the watcher, because the server has ended already
	return gone(pids)
}

// Freeze stops the server and every process of its connections without ending them: sockets stay open
// but nothing answers.
func (s *Server) Freeze() error {
	_, err := s.signal(syscall.SIGSTOP)
	return err
}

// Thaw lets a frozen server continue.
func (s *Server) Thaw() error {
	_, err := s.signal(syscall.SIGCONT)
	return err
}

// signal sends sig to the server and its children, and returns the ids of the children. It stops the server
// before it lists them, so that the server starts no other child in the meantime: a child that outlives a
// killed server prevents the next start. It works on a frozen server too.
func (s *Server) signal(sig syscall.Signal) ([]int, error) {
	server, err := s.PID()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("signal postgres: %w", err)
	}
	children, err := childrenOf(server)
	if err != nil {
		return nil, errors.Join(err, syscall.Kill(server, syscall.SIGCONT))
	}
	for _, pid := range append(slices.Clone(children), server) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("signal postgres: %w", err)
		}
	}
	return children, nil
}

func childrenOf(pid int) ([]int, error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of postgres: %w", err)
	}
	var pids []int
	for _, word := range strings.Fields(string(out)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("list processes of postgres: %w", err)
		}
		pids = append(pids, child)
	}
	return pids, nil
}

// gone waits until killed processes have ended: a new server that starts while the last one still writes could
// read a partial write. A process that writes to a busy disk ends only after the write, so gone waits for up to
// a minute.
func gone(pids []int) error {
	deadline := time.Now().Add(time.Minute)
	for _, pid := range pids {
		for syscall.Kill(pid, 0) == nil && !zombie(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d of postgres outlives SIGKILL", pid)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	return nil
}

// zombie reports whether a process has ended but is still in the process table.
func zombie(pid int) bool {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil { // Linux; ps would read the files of all processes
		return strings.HasPrefix(string(text[bytes.LastIndexByte(text, ')')+1:]), " Z")
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
