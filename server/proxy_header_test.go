package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
)

// headerV2 builds a binary PROXY header; follows holds the bytes after its fixed part.
func headerV2(command, family byte, follows ...byte) string {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), command, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(follows)))
	return string(append(b, follows...))
}

var (
	inet4 = []byte{203, 0, 113, 9, 192, 0, 2, 1, 0xcb, 0x2b, 0, 80}
	inet6 = append(append(netip.MustParseAddr("2001:db8::7").AsSlice(), netip.MustParseAddr("2001:db8::1").AsSlice()...), 0xcb, 0x2b, 0, 80)
)

func with(b []byte, more ...byte) []byte { return append(bytes.Clone(b), more...) }

func TestReadHeader(t *testing.T) {
	t.Parallel()
	const from4, from6 = "203.0.113.9:52011", "[2001:db8::7]:52011"
	for name, c := range map[string]struct{ text, from string }{
		"v1 tcp4":             {"PROXY TCP4 203.0.113.9 192.0.2.1 52011 80\r\n", from4},
		"v1 tcp6":             {"PROXY TCP6 2001:db8::7 2001:db8::1 52011 80\r\n", from6},
		"v1 mapped":           {"PROXY TCP6 ::ffff:203.0.113.9 ::ffff:192.0.2.1 52011 80\r\n", from4},
		"v1 unknown":          {"PROXY UNKNOWN\r\n", "local"},
		"v1 unknown, longest": {"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", "local"},
		"v2 tcp4":             {headerV2(0x21, 0x11, inet4...), from4},
		"v2 tcp6":             {headerV2(0x21, 0x21, inet6...), from6},
		"v2 tlvs":             {headerV2(0x21, 0x11, with(inet4, 0x02, 0, 3, 'a', 'b', 'c', 0x04, 0, 0)...), from4},
		"v2 local":            {headerV2(0x20, 0x00), "local"},
		"v2 local, addresses": {headerV2(0x20, 0x11, inet4...), "local"},
		"v2 largest":          {headerV2(0x21, 0x11, with(inet4, append([]byte{0x04, 0x0f, 0xf1}, make([]byte, 0xff1)...)...)...), from4},

		"http":               {"GET / HTTP/1.1\r\n\r\n", ""},
		"tls":                {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""},
		"v1 lower case":      {"proxy TCP4 203.0.113.9 192.0.2.1 52011 80\r\n", ""},
		"v1 bare line feed":  {"PROXY TCP4 203.0.113.9 192.0.2.1 52011 80\n", ""},
		"v1 wrong family":    {"PROXY TCP4 2001:db8::7 2001:db8::1 52011 80\r\n", ""},
		"v1 no port":         {"PROXY TCP4 203.0.113.9 192.0.2.1 52011\r\n", ""},
		"v1 seventh word":    {"PROXY TCP4 203.0.113.9 192.0.2.1 52011 80 x\r\n", ""},
		"v1 large port":      {"PROXY TCP4 203.0.113.9 192.0.2.1 65536 80\r\n", ""},
		"v1 no address":      {"PROXY TCP4 unix /tmp/x 1 2\r\n", ""},
		"v1 nobody":          {"PROXY TCP4 0.0.0.0 192.0.2.1 52011 80\r\n", ""},
		"v1 endless":         {"PROXY TCP4 " + strings.Repeat("1", 200), ""},
		"v2 signature only":  {"\r\n\r\n\x00\r\nQUIT\n", ""},
		"v2 wrong signature": {"\r\n\r\n\x00\r\nQUIT\r\x21\x11\x00\x00", ""},
		"v2 version 1":       {headerV2(0x11, 0x11, inet4...), ""},
		"v2 unknown command": {headerV2(0x22, 0x11, inet4...), ""},
		"v2 proxy unspec":    {headerV2(0x21, 0x00), ""},
		"v2 udp":             {headerV2(0x21, 0x12, inet4...), ""},
		"v2 unix":            {headerV2(0x21, 0x31, make([]byte, 216)...), ""},
		"v2 short addresses": {headerV2(0x21, 0x21, inet4...), ""},
		"v2 torn tlv":        {headerV2(0x21, 0x11, with(inet4, 0x02, 0, 9, 'a')...), ""},
		"v2 oversized":       {headerV2(0x21, 0x11, with(inet4, make([]byte, 4096)...)...), ""},
		"v2 cut off":         {headerV2(0x21, 0x11, inet4...)[:20], ""},
		"nothing":            {"", ""},
	} {
		const behind = "and what comes behind"
		r := strings.NewReader(c.text + behind)
		if strings.HasSuffix(name, "off") || name == "nothing" {
			r = strings.NewReader(c.text)
		}
		from, err := readHeader(iotest.OneByteReader(r))
		switch {
		case c.from == "":
			if err == nil {
				t.Errorf("%s: taken as from %v", name, from)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.from == "local" && from.IsValid(), c.from != "local" && from.String() != c.from:
			t.Errorf("%s: from %v, want %s", name, from, c.from)
		}
		if left, _ := io.ReadAll(r); string(left) != behind {
			t.Errorf("%s: %q is left", name, left)
		}
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 203.0.113.9 192.0.2.1 52011 80\r\n"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte(headerV2(0x21, 0x21, inet6...)))
	f.Add([]byte(headerV2(0x20, 0x00, 0x04, 0, 1, 0)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		from, err := readHeader(r)
		if err != nil && from.IsValid() {
			t.Errorf("%v and %v", from, err)
		}
		if taken := len(text) - r.Len(); taken > v2Fixed+maxV2Payload {
			t.Errorf("%d bytes were taken", taken)
		}
	})
}
