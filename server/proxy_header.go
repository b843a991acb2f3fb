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

// Lengths of headers. Version 1 is one line. Version 2 has 16 fixed bytes, which hold
// the length of what follows: addresses and TLVs.
const (
	minHeader    = 6  // enough to tell a header from anything else
	minV1Line    = 15 // PROXY UNKNOWN and its line end
	maxV1Line    = 107
	v2Fixed      = 16
	maxV2Payload = 4 << 10
)

var errNoHeader = errors.New("there is no PROXY header")

// readHeader reads a PROXY header and not a byte more. It returns the zero value if the
// proxy itself is the source. The header is framed here because go-proxyproto refuses a
// line of version 1 that arrives in more than one read.
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
		return netip.AddrPort{}, fmt.Errorf("a PROXY header with source %v, which is no host", src)
	}
	return from, nil
}

// frameHeader returns the bytes of a header of either version.
func frameHeader(r io.Reader) ([]byte, error) {
	text := make([]byte, minHeader, maxV1Line)
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

// frameLine reads to the end of the line, byte by byte at its end, because the bytes
// after it belong to the connection.
func frameLine(r io.Reader, text []byte) ([]byte, error) {
	text, err := readUpTo(r, text, minV1Line)
	for err == nil && text[len(text)-1] != '\n' {
		if len(text) >= maxV1Line {
			return nil, proxyproto.ErrVersion1HeaderTooLong
		}
		text, err = readUpTo(r, text, len(text)+1)
	}
	return text, err
}

func frameBinary(r io.Reader, text []byte) ([]byte, error) {
	text, err := readUpTo(r, text, v2Fixed)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, proxyproto.SIGV2) {
		return nil, errNoHeader
	}
	follows := int(binary.BigEndian.Uint16(text[v2Fixed-2:]))
	if follows > maxV2Payload {
		return nil, fmt.Errorf("a PROXY header of %d bytes; %d are the most", v2Fixed+follows, v2Fixed+maxV2Payload)
	}
	return readUpTo(r, text, v2Fixed+follows)
}

// readUpTo reads until text is n bytes long.
func readUpTo(r io.Reader, text []byte, n int) ([]byte, error) {
	have := len(text)
	text = append(text, make([]byte, n-have)...)
	_, err := io.ReadFull(r, text[have:])
	return text, err
}

// rejectHeaderConn is a connection from a source that is not trusted. It closes itself
// if it begins with a PROXY header.
type rejectHeaderConn struct {
	net.Conn
	proxies *Proxies
	seen    []byte // first bytes, nil once checked
	checked bool
}

var errUntrustedHeader = errors.New("a PROXY header from a source that is not trusted")

// Read checks the first bytes.
func (c *rejectHeaderConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.checked {
		return n, err
	}
	c.seen = append(c.seen, p[:min(n, len(proxyproto.SIGV2)-len(c.seen))]...)
	for _, sign := range [][]byte{[]byte("PROXY "), proxyproto.SIGV2} {
		if bytes.HasPrefix(c.seen, sign) {
			c.proxies.met.count(headerUntrusted)
			_ = c.Close()
			return 0, errUntrustedHeader
		}
	}
	if len(c.seen) == len(proxyproto.SIGV2) {
		c.seen, c.checked = nil, true
	}
	return n, err
}

// NetConn returns the connection below.
func (c *rejectHeaderConn) NetConn() net.Conn { return c.Conn }
