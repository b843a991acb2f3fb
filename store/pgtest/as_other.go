//go:build !unix

package pgtest

import "os/exec"

// as leaves a command as it is where there are no unix users.
func (s *Server) as(cmd *exec.Cmd) { cmd.Dir = s.dir }
