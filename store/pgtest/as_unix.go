//go:build unix

package pgtest

import (
	"os/exec"
	"strconv"
	"syscall"
)

// as makes a command run as the server's user, in a process group of its own. So Ctrl+C ends only the tests,
// and the watcher ends the server after them.
func (s *Server) as(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.who == nil {
		return
	}
	uid, _ := strconv.ParseUint(s.who.Uid, 10, 32)
	gid, _ := strconv.ParseUint(s.who.Gid, 10, 32)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
