package login

import (
	"context"
	"crypto/rsa"
	"math/big"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/link"
)

// TestClientsThatLeaveTheLine: if a client disconnects while its login waits for one of the maxLookups concurrent
// store queries, relayd makes no query for it.
func TestClientsThatLeaveTheLine(t *testing.T) {
	t.Parallel()
	workers := link.NewWorkers()
	defer workers.Close()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	conn := link.New(ours, link.Options{Workers: workers})
	defer conn.Close(link.Stopped)
	peer, gone := context.WithCancel(t.Context())
	all := New(Options{})
	g := all.Login(conn, nil, netip.AddrPort{}, peer)
	if !all.lookups.TryAcquire(maxLookups) {
		t.Fatal("lookups are under way")
	}
	left := make(chan bool)
	go func() {
		ctx, _ := g.BeginLookup(lookupTime)
		left <- ctx != nil
	}()
	gone()
	if <-left {
		t.Error("a lookup for a client that has gone")
	}
	if n := all.Waiting() + g.lookups.Load(); n != 0 {
		t.Errorf("%d wait for it", n)
	}
	all.lookups.Release(maxLookups)
	g = all.Login(conn, nil, netip.AddrPort{}, t.Context())
	for range 2 * maxLookups { // BeginLookup would block here if an earlier query still counted
		_, done := g.BeginLookup(lookupTime)
		done()
	}
}

// TestSizesOfRSAKeys: RSA keys of minRSA to maxRSA bits are accepted. Smaller ones are insecure, and
// larger ones would cost the server too much time.
func TestSizesOfRSAKeys(t *testing.T) {
	t.Parallel()
	for bits, usable := range map[uint]bool{minRSA - 1: false, minRSA: true, maxRSA: true, maxRSA + 1: false} {
		modulus := new(big.Int).Lsh(big.NewInt(1), bits-1)
		public, err := ssh.NewPublicKey(&rsa.PublicKey{N: modulus.SetBit(modulus, 0, 1), E: 65537})
		if err != nil {
			t.Fatal(err)
		}
		if err := checkKey(public); (err == nil) != usable {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}
