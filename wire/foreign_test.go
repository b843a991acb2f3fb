package wire

import (
	"strings"
	"testing"

	"relay"
)

// TestForeignProtocols: if a port speaks TLS or HTTP/2, the error says so, and does not say that the
// port is no web server.
func TestForeignProtocols(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"\x15\x03\x01\x00\x02\x02\x46":                     "it speaks TLS; use --target https://…", // sent by Node, Python and Java
		"\x15\x03\x03\x00\x02\x02\x46":                     "it speaks TLS; use --target https://…",
		"\x15":                                             "it speaks TLS; use --target https://…",
		"\x16\x03\x03\x00\x7a\x02":                         "it speaks TLS; use --target https://…",
		"\x00\x00\x00\x04\x00\x00\x00\x00\x00":             "it speaks HTTP/2 without TLS",
		"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00": "it speaks HTTP/2 without TLS",
		"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00": "it speaks HTTP/2 without TLS",
		"\x00\x00\x12\x04\x00\x00\x00\x00\x01":             "is it a web server?",
		"\x15\x05\x01":                                     "is it a web server?",
		"SSH-2.0-OpenSSH_9.2\r\n":                          "is it a web server?",
		"\x00":                                             "is it a web server?",
	} {
		_, _, err := Response([]byte(answer), Limits{}, nil)
		if e := relay.AsError(err); e == nil || e.Code != relay.CodeLocalMalformed || !strings.Contains(e.Detail, want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
