package relay

// Framing says how the end of a message body is found (RFC 9112, section 6).
type Framing uint8

// The framings. FramingClose occurs in responses only.
const (
	FramingNone Framing = iota
	FramingLength
	FramingChunked
	FramingClose
)

// String returns the public word: none, length, chunked, close.
func (f Framing) String() string {
	return [...]string{"none", "length", "chunked", "close"}[f&3]
}

// Body states. Of a request: complete, receiving, aborted, not_sent, over_limit.
// Of a response: complete, over_limit.
const (
	BodyComplete  = "complete"
	BodyReceiving = "receiving"
	BodyAborted   = "aborted"
	BodyNotSent   = "not_sent"
	BodyOverLimit = "over_limit"
)

// Response states.
const (
	ResponseComplete  = "complete"
	ResponseTruncated = "truncated" // the local server broke off
	ResponseCut       = "cut"       // the relay stopped reading
	ResponseUpgraded  = "upgraded"
)

// Chunking of stored bodies: a body larger than InlineBody is stored as parts of
// BodyPart bytes (the last one shorter), counted from 0.
const (
	InlineBody = 256 << 10
	BodyPart   = 256 << 10
)

// Body is a message body without its transfer coding. Size and SHA256 cover all bytes
// that passed; Data and the stored parts may have fewer.
type Body struct {
	// Data is the inline body, or the first bytes of a body that is stored as parts,
	// as many as the reader asked for.
	Data   []byte
	Parts  int // > 0: the body is stored as that many parts, and Data is not stored with the row
	Stored int64
	Size   int64
	SHA256 [32]byte
	State  string
}

// Message is one request or response as it crossed the wire. Head, Lines and the
// decoded body rebuild the wire form exactly (wire.Rebuild).
type Message struct {
	Head    []byte // start line to the empty line, exactly as received
	Lines   []byte // chunked only: every chunk-size line, the last chunk, trailers, final empty line
	Framing Framing
	Body    Body
}
