package link

import (
	"testing"

	"golang.org/x/crypto/ssh"
)

// BenchmarkChannel opens a channel, sends a small request, reads the answer and closes the channel. The
// figures include the peer, which uses only x/crypto.
func BenchmarkChannel(b *testing.B) {
	own, peer := pair(b, Options{})
	offers := peer.HandleChannelOpen("x")
	go func() {
		for o := range offers {
			ch, reqs, err := o.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(reqs)
			go func() {
				var buf [1024]byte
				n, _ := ch.Read(buf[:])
				_, _ = ch.Write(buf[:n/4])
				_, _ = ch.Read(buf[:])
				_ = ch.Close()
			}()
		}
	}()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		var request, answer [280]byte
		for p.Next() {
			ch, err := own.OpenChannel(b.Context(), "x", nil, ChannelOptions{EOF: EOFUnlessLost, Explains: true, Guarded: true})
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = ch.Write(request[:])
			<-ch.Ready()
			if _, err := ch.Read(answer[:]); err != nil {
				b.Error(err)
			}
			_ = ch.Close()
		}
	})
}
