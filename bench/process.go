package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tick is the unit of the times in /proc/PID/stat, in microseconds. It is a constant of the
// interface (USER_HZ), whatever the kernel's own clock.
const tick = 10_000

// process is a line of /proc/PID/stat.
type process struct {
	pid, parent int
	cpu         int64 // microseconds, of children that were waited for too
}

func readProcesses() (map[int]process, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("processes cannot be read from /proc: %w", err)
	}
	out := make(map[int]process, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		_, rest, _ := strings.Cut(string(text), ") ") // the name may hold spaces
		f := strings.Fields(rest)
		if len(f) < 15 {
			continue
		}
		p := process{pid: pid}
		p.parent, _ = strconv.Atoi(f[1])
		for _, field := range f[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(field, 10, 64)
			p.cpu += n * tick
		}
		out[pid] = p
	}
	return out, nil
}

// cpuOf sums the CPU time of processes and their descendants, in microseconds.
func cpuOf(roots []int) (total int64, err error) {
	all, err := readProcesses()
	if err != nil {
		return 0, err
	}
	within := map[int]bool{}
	for _, pid := range roots {
		within[pid] = true
	}
	for changed := true; changed; {
		changed = false
		for pid, p := range all {
			if !within[pid] && within[p.parent] {
				within[pid], changed = true, true
			}
		}
	}
	for pid := range within {
		total += all[pid].cpu
	}
	return total, nil
}

// residentBytes is the resident memory of one process.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text))
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
