//go:build !unix

package pgtest

import "os/exec"

// as does not change the user of a command on systems without unix users.
func (s *Server) as(cmd *exec.Cmd) { cmd.Dir = s.dir }
