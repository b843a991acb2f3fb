package wire

import "relay"

// Limits of chunked bodies (RFC 9112, section 7.1).
const (
	maxChunkDigits = 16
	maxChunk       = 1 << 60 // bytes of one chunk
	maxChunkLine   = 4 << 10 // bytes of a chunk-size line, CRLF included
	maxTrailers    = 64 << 10
	// The framing lines of a request are kept in memory, so they may have maxFramed bytes
	// altogether, and one more byte for each framedShare bytes of data. Responses have no such
	// limit, because they may be endless streams of small chunks.
	maxFramed   = 4 << 20
	framedShare = 64
)

// chunkState is the kind of byte that is expected next in a chunked body.
type chunkState uint8

const (
	atSize      chunkState = iota // a digit of the chunk size, or the byte after it
	afterSize                     // white space after the size
	inExtension                   // extension after the first semicolon
	sizeLF                        // LF of a chunk-size line
	inData
	dataCR // CR after chunk data; dataEnd needs dataCR, dataLF and dataEnded in this order
	dataLF
	dataEnded
	trailerStart
	inName
	inValue
	trailerLF
	lastLF // LF of the empty line at the end of the body
	lastEnd
)

// chunk reads the lines of a chunked body.
type chunk struct {
	strict   bool
	state    chunkState
	digits   int
	size     int64
	line     int   // bytes of the current chunk-size line
	trailers int   // bytes of the trailer section
	framed   int64 // bytes of all lines
	name     [len("transfer-encoding")]byte
	named    int // length of the trailer name, which may exceed the length of the array name
}

// step parses one byte of a line, or several bytes that do not change the state. why describes an
// error, "" = none.
func (c *chunk) step(p []byte) (n int, why string) {
	if c.state >= trailerStart {
		n, why = c.trailer(p)
		c.trailers += n
		if why == "" && c.trailers > maxTrailers {
			why = "its trailers are too large"
		}
		return n, why
	}
	n = 1
	switch c.state {
	case atSize, afterSize:
		why = c.sizeByte(p[0])
	case inExtension:
		n, why = c.text(p, sizeLF)
	case sizeLF:
		if p[0] != '\n' {
			why = "a chunk-size line holds a CR without LF"
		}
		c.state = inData
		if c.size == 0 {
			c.state = trailerStart
		}
	}
	c.line += n
	if why == "" && c.line > maxChunkLine {
		why = "a chunk-size line is too long"
	}
	return n, why
}

// sizeByte parses a digit of a size, or the byte after the size. The RFC allows white space only
// before an extension, but some local servers pad their sizes with spaces.
func (c *chunk) sizeByte(b byte) string {
	padded := c.state == afterSize
	switch {
	case is(b, hexOctet) && !padded:
		c.digits++
		size, ok := addHex(c.size, b)
		if !ok || c.digits > maxChunkDigits {
			return "a chunk size is too large"
		}
		c.size = size
	case c.digits == 0:
		return "a chunk does not begin with its size in hexadecimal digits"
	case b == ';':
		c.state = inExtension
	case isSpace(b):
		c.state = afterSize
	case b == '\r' && !(padded && c.strict):
		c.state = sizeLF
	case padded:
		return "white space follows a chunk size"
	default:
		return "a chunk size is not followed by CRLF or an extension"
	}
	return ""
}

// trailer parses bytes of the trailer section.
func (c *chunk) trailer(p []byte) (n int, why string) {
	b := p[0]
	switch c.state {
	case trailerStart:
		switch {
		case b == '\r':
			c.state = lastLF
		case is(b, tokenOctet):
			c.state, c.named = inName, 0
			return 1, c.nameByte(b)
		case isSpace(b) && !c.strict && c.named > 0:
			c.state = inValue
		default:
			return 1, "a trailer line does not begin with a name"
		}
		return 1, ""
	case inName:
		return 1, c.nameByte(b)
	case inValue:
		return c.text(p, trailerLF)
	case trailerLF:
		c.state = trailerStart
	case lastLF:
		c.state = lastEnd
	}
	if b != '\n' {
		return 1, "a trailer line holds a CR without LF"
	}
	return 1, ""
}

func (c *chunk) nameByte(b byte) string {
	switch {
	case b == ':':
		c.state = inValue
		// The following names are refused: if a server merges trailers into the headers, they
		// change framing or routing (RFC 9110, section 6.5.1).
		name := c.name[:min(c.named, len(c.name))]
		if c.strict && len(name) == c.named && (fold(name, "content-length") || fold(name, "transfer-encoding") || fold(name, "host")) {
			return "a trailer is named Content-Length, Transfer-Encoding or Host"
		}
		return ""
	case is(b, tokenOctet), !c.strict && is(b, valueOctet):
		if c.named < len(c.name) {
			c.name[c.named] = b
		}
		c.named++
		return ""
	}
	return "a trailer name holds a byte that names must not have, or has no colon"
}

// text parses bytes of an extension or a value, or the CR after it. The argument next is the state after the
// CR.
func (c *chunk) text(p []byte, next chunkState) (n int, why string) {
	for n < len(p) && (is(p[n], valueOctet) || !c.strict && p[n] != '\r' && p[n] != '\n' && p[n] != 0) {
		n++
	}
	switch {
	case n > 0:
		return n, ""
	case p[0] == '\r':
		c.state = next
		return 1, ""
	case p[0] == '\n':
		return 1, "a line of its chunks ends with LF alone"
	}
	return 1, "a line of its chunks holds a control byte"
}

func (c *chunk) refuse(why string) *relay.Error {
	if c.strict {
		return malformed(why)
	}
	return localMalformed(why)
}

// addHex appends a hexadecimal digit to a chunk size. It returns false if the result would not be less than maxChunk.
func addHex(size int64, digit byte) (int64, bool) {
	switch {
	case size >= maxChunk>>4:
		return 0, false
	case digit <= '9':
		digit -= '0'
	default:
		digit = lower(digit) - 'a' + 10
	}
	return size<<4 | int64(digit), true
}
