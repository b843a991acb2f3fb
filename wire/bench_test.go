package wire_test

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"relay"
	"relay/wire"
)

// usual is the head of a webhook from a typical provider.
const usual = "POST /hook?source=stripe HTTP/1.1\r\nHost: stripe-dev.localhost:8080\r\n" +
	"User-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nContent-Type: application/json; charset=utf-8\r\n" +
	"Accept: */*; q=0.5, application/xml\r\nCache-Control: no-cache\r\nContent-Length: 1024\r\nConnection: keep-alive\r\n" +
	"Stripe-Signature: t=1492774577,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd\r\n\r\n"

func BenchmarkRequest(b *testing.B) {
	p := []byte(usual)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := wire.Request(p, wire.Limits{Head: 128 << 10, Target: 16 << 10}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNetHTTP measures http.ReadRequest on the head usual, for comparison with this package.
func BenchmarkNetHTTP(b *testing.B) {
	p := []byte(usual)
	r := bytes.NewReader(p)
	br := bufio.NewReader(r)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(p)
		br.Reset(r)
		if _, err := http.ReadRequest(br); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResponse(b *testing.B) {
	p := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Fri, 21 Nov 2026 08:00:00 GMT\r\nContent-Length: 2\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n")
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := wire.Response(p, wire.Limits{Head: 128 << 10}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequestByteByByte parses a head that arrives one byte at a time.
func BenchmarkRequestByteByByte(b *testing.B) {
	p := []byte("GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Many: 0123456789\r\n", 6000) + "\r\n")
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		for n := 1; n <= len(p); n++ {
			if _, _, err := wire.Request(p[:n], wire.Limits{Seen: n - 1}); code(err) != "more" && n < len(p) {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkFields(b *testing.B) {
	p := []byte(usual)
	b.ReportAllocs()
	for b.Loop() {
		wire.Fields(p)
	}
}

func BenchmarkFeed(b *testing.B) {
	for name, size := range map[string]int{"16": 16, "4096": 4096} {
		b.Run("chunks of "+name, func(b *testing.B) {
			chunk := map[int]string{16: "10", 4096: "1000"}[size] + "\r\n" + strings.Repeat("d", size) + "\r\n"
			p := []byte(strings.Repeat(chunk, 64<<10/len(chunk)+1))
			body := wire.NewBody(&wire.Head{Framing: relay.FramingChunked, Status: 200})
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := body.Feed(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
