//go:build unix

package relaytest

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestFreeAddrBesideProcesses: a process that starts during ReserveAddr does not inherit the listener with
// which ReserveAddr tests the address. Without the lock in nobodyListens, 4 to 14 of 2,000 addresses would
// still be in use afterwards. One address may be in use, because a program that reserves no addresses can
// take it.
func TestFreeAddrBesideProcesses(t *testing.T) {
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !stop.Load() {
			_ = exec.Command("true").Run()
		}
	}()
	var inUse []error
	for range 2000 {
		addr, release, err := ReserveAddr()
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			inUse = append(inUse, err)
		} else {
			_ = ln.Close()
		}
		release()
	}
	stop.Store(true)
	<-ended
	if len(inUse) > 1 {
		t.Errorf("%d of 2000 addresses are in use: %v", len(inUse), inUse)
	}
}

// TestReserveAddr: the UDP socket that reserves an address for other processes stays open until the function release is
// called.
func TestReserveAddr(t *testing.T) {
	t.Parallel()
	addr, release, err := ReserveAddr()
	if err != nil {
		t.Fatal(err)
	}
	mark := strings.Replace(addr, "127.0.0.1", "127.0.0.2", 1)
	other, err := net.ListenPacket("udp", mark)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Skip("this system has no second loopback address")
	}
	if err == nil {
		_ = other.Close()
		t.Error("the number is not reserved")
	}
	release()
	if other, err = net.ListenPacket("udp", mark); err != nil {
		t.Fatalf("the number is not given back: %v", err)
	}
	_ = other.Close()
}

// TestStopIsSeen: Slowdown reports a stop of the process between two pieces of work.
func TestStopIsSeen(t *testing.T) {
	// A stop may begin shortly before the end of a sleep of meterLook, and only what comes after that end is seen.
	const seen = 120*time.Millisecond - meterLook - 10*time.Millisecond
	Slowdown(time.Now()) // starts the measurement of the load
	for range 5 {
		time.Sleep(70 * time.Millisecond)
		begun := time.Now()
		if out, err := exec.Command("sh", "-c", "kill -STOP $PPID; sleep 0.12; kill -CONT $PPID").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		took := time.Since(begun)
		if _, longest := Slowdown(begun); took > 100*time.Millisecond && longest < seen {
			t.Errorf("of %v with a stop of 120 ms it saw %v", took, longest)
		}
	}
}
