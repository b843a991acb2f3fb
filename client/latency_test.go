package client

import (
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// BenchmarkFirstByte measures one small request over a channel that is already open: from the first byte of the
// request, through the dial of the local server, to the first byte of the response.
func BenchmarkFirstByte(b *testing.B) {
	ln, target := newListener(b)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				var buf [256]byte
				_, _ = c.Read(buf[:])
				_, _ = c.Write(buf[:64])
				c.Close()
			}()
		}
	}()
	conn, _ := online(b, target)
	var took []time.Duration
	buf := make([]byte, 256)
	for b.Loop() {
		b.StopTimer()
		ch, requests, err := conn.channel("stripe-dev")
		if err != nil {
			b.Fatal(err)
		}
		go ssh.DiscardRequests(requests)
		b.StartTimer()
		begun := time.Now()
		_, _ = ch.Write(buf[:128])
		if _, err := io.ReadFull(ch, buf[:1]); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begun))
		b.StopTimer()
		_, _ = io.Copy(io.Discard, ch)
		ch.Close()
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/median")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "µs/p90")
}
