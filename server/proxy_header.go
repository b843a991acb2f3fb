package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

// Lengths of headers. Version 1 is one line; version 2 has 16 fixed bytes and says
// how much follows: addresses and TLVs. Longer ones than these are refused.
const (
	telling     = 6  // bytes after which a header is told from anything else
	shortLine   = 15 // PROXY UNKNOWN and its line end
	longLine    = 107
	fixedPart   = 16
	mostFollows = 4 << 10
)

var errNoHeader = errors.New("there is no PROXY header")

// readHeader reads a PROXY header and not a byte more. The zero value means that the
// proxy speaks for itself. It does not matter in how many pieces the header comes;
// the deadline of r is the end of waiting.
func readHeader(r io.Reader) (netip.AddrPort, error) {
	text, err := frameHeader(r)
	if err != nil {
		return netip.AddrPort{}, err
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(text), len(text)))
	if err != nil {
		return netip.AddrPort{}, err
	}
	if h.Command.IsLocal() {
		return netip.AddrPort{}, nil
	}
	if h.TransportProtocol != proxyproto.TCPv4 && h.TransportProtocol != proxyproto.TCPv6 {
		return netip.AddrPort{}, fmt.Errorf("a PROXY header of address family and protocol %#x, which is no TCP connection", byte(h.TransportProtocol))
	}
	if h.Version == 1 && bytes.Count(text, []byte(" ")) != 5 {
		return netip.AddrPort{}, errors.New("a PROXY header of version 1 with more than six words")
	}
	if _, err := h.TLVs(); err != nil {
		return netip.AddrPort{}, fmt.Errorf("TLVs of a PROXY header: %w", err)
	}
	src, _, ok := h.TCPAddrs()
	if !ok {
		return netip.AddrPort{}, errors.New("a PROXY header without addresses")
	}
	from := addrOf(src)
	if !from.IsValid() || from.Addr().IsUnspecified() || from.Addr().IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("a PROXY header with source %v, which is nobody's", src)
	}
	return from, nil
}

// frameHeader gives the bytes of a header of either version.
func frameHeader(r io.Reader) ([]byte, error) {
	text := make([]byte, telling, longLine)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	switch {
	case string(text) == "PROXY ":
		return frameLine(r, text)
	case bytes.HasPrefix(proxyproto.SIGV2, text):
		return frameBinary(r, text)
	}
	return nil, errNoHeader
}

// frameLine reads on to the end of a line, byte by byte at last: what is behind it
// is not ours.
func frameLine(r io.Reader, text []byte) ([]byte, error) {
	text, err := readOn(r, text, shortLine)
	for err == nil && text[len(text)-1] != '\n' {
		if len(text) >= longLine {
			return nil, proxyproto.ErrVersion1HeaderTooLong
		}
		text, err = readOn(r, text, len(text)+1)
	}
	return text, err
}

func frameBinary(r io.Reader, text []byte) ([]byte, error) {
	text, err := readOn(r, text, fixedPart)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, proxyproto.SIGV2) {
		return nil, errNoHeader
	}
	follows := int(binary.BigEndian.Uint16(text[fixedPart-2:]))
	if follows > mostFollows {
		return nil, fmt.Errorf("a PROXY header of %d bytes; %d are the most", fixedPart+follows, fixedPart+mostFollows)
	}
	return readOn(r, text, fixedPart+follows)
}

// readOn reads until text is n bytes long.
func readOn(r io.Reader, text []byte, n int) ([]byte, error) {
	have := len(text)
	text = append(text, make([]byte, n-have)...)
	_, err := io.ReadFull(r, text[have:])
	return text, err
}

// guardedConn is a connection from a source that is not trusted: it breaks off when
// it begins with a PROXY header.
type guardedConn struct {
	net.Conn
	proxies *Proxies
	start   []byte // first bytes; of no use once there are enough of them
	sure    bool
}

var errStranger = errors.New("a PROXY header from a source that is not trusted")

// Read looks at the first bytes on their way.
func (c *guardedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.sure {
		return n, err
	}
	c.start = append(c.start, p[:min(n, len(proxyproto.SIGV2)-len(c.start))]...)
	for _, sign := range [][]byte{[]byte("PROXY "), proxyproto.SIGV2} {
		if bytes.HasPrefix(c.start, sign) {
			c.proxies.met.count(headerStranger)
			_ = c.Close()
			return 0, errStranger
		}
	}
	if len(c.start) == len(proxyproto.SIGV2) {
		c.start, c.sure = nil, true
	}
	return n, err
}

// NetConn is the connection below.
func (c *guardedConn) NetConn() net.Conn { return c.Conn }
