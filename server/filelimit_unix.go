//go:build unix

package server

import (
	"math"
	"syscall"
)

// fileLimit is how many descriptors this process may have; 0 = unknown. The runtime
// has raised the soft limit to the hard one before main.
func fileLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(uint64(r.Cur), math.MaxInt32))
}
