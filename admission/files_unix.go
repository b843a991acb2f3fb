//go:build unix

package admission

import (
	"math"
	"syscall"
)

// FileLimit returns the number of file descriptors that this process may have, 0 =
// unknown. The Go runtime has raised the soft limit to the hard limit before main.
func FileLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(uint64(r.Cur), math.MaxInt32))
}
