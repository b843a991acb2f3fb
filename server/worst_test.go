package server

import (
	"bytes"
	"encoding/binary"
	"net/url"
	"slices"
	"testing"

	"github.com/pires/go-proxyproto"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: hosts, first lines and PROXY headers are parsed in time proportional to their length.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	h := newHosts(relay.Site{Base: url.URL{Scheme: "http", Host: "example.com"}, AliasDomain: "example.com"})
	v2 := func(kind byte, p []byte) []byte {
		p = p[:min(len(p), maxV2Payload)]
		return append(binary.BigEndian.AppendUint16(append(slices.Clone(proxyproto.SIGV2), 0x21, kind), uint16(len(p))), p...)
	}
	addresses := make([]byte, 12)
	for name, f := range map[string]func(p []byte){
		"host":            func(p []byte) { h.find(string(p)) },
		"alias":           func(p []byte) { h.find(string(p) + ".example.com") },
		"request":         func(p []byte) { methodAndPath(p) },
		"start of a line": func(p []byte) { _, _ = readHeader(bytes.NewReader(p)) },
		"PROXY v1":        func(p []byte) { _, _ = readHeader(bytes.NewReader(append([]byte("PROXY TCP4 "), p...))) },
		"PROXY v1 line": func(p []byte) {
			_, _ = readHeader(bytes.NewReader(append(append([]byte("PROXY UNKNOWN "), p[:min(len(p), 80)]...), "\r\n"...)))
		},
		"PROXY v2":       func(p []byte) { _, _ = readHeader(bytes.NewReader(v2(0x11, p))) },
		"PROXY v2, TLVs": func(p []byte) { _, _ = readHeader(bytes.NewReader(v2(0x11, append(slices.Clone(addresses), p...)))) },
		"PROXY v2, unix": func(p []byte) { _, _ = readHeader(bytes.NewReader(v2(0x31, p))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, 128<<10, f)
		})
	}
}
