package record

import "testing"

// BenchmarkRecognise measures the recognition of a request from an unknown sender, for which every row of
// the table is tried.
func BenchmarkRecognise(b *testing.B) {
	head := []byte("POST /hook HTTP/1.1\r\nHost: bench.localhost\r\nUser-Agent: load\r\nContent-Type: application/json\r\n" +
		"Accept: */*\r\nAccept-Encoding: gzip\r\nContent-Length: 25\r\n\r\n")
	body := []byte(`{"id":1,"type":"created"}`)
	b.ReportAllocs()
	for b.Loop() {
		if Recognise(head, body).Name != "" {
			b.Fatal("recognised")
		}
	}
}
