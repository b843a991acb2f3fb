package relay

// Framing is the way in which the end of a message body is marked (RFC 9112, section 6).
type Framing uint8

// The framings. FramingClose occurs in responses only.
const (
	FramingNone Framing = iota
	FramingLength
	FramingChunked
	FramingClose
)

// String returns the name of the framing in the API and in exports: none, length, chunked, close.
func (f Framing) String() string {
	return [...]string{"none", "length", "chunked", "close"}[f&3]
}

// Body states. A request has one of complete, receiving, aborted, not_sent and over_limit; a
// response has complete or over_limit.
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
	ResponseTruncated = "truncated" // the local server closed its connection too early
	ResponseCut       = "cut"       // the relay stopped reading the response
	ResponseUpgraded  = "upgraded"
)

// A body larger than InlineBody bytes is stored as parts of BodyPart bytes, numbered from
// 0. The last part may be shorter.
const (
	InlineBody = 256 << 10
	BodyPart   = 256 << 10
)

// Body is a message body without its transfer coding. Size and SHA256 cover every byte that was
// transferred; Data and the stored parts may have fewer bytes.
type Body struct {
	// Data is the inline body or, for a body that is stored as parts, the first bytes, up to the
	// number that the reader asked for.
	Data   []byte
	Parts  int // number of stored parts; 0 = the body is stored inline as Data
	Stored int64
	Size   int64
	SHA256 [32]byte
	State  string
}

// Message is one request or response as it was transferred. Head, Lines and the decoded body are
// enough to rebuild its exact bytes (wire.Rebuild).
type Message struct {
	Head    []byte // start line to the empty line, exactly as received
	Lines   []byte // chunked only: every chunk-size line, the last chunk, trailers, final empty line
	Framing Framing
	Body    Body
	// HeadOmitted is set if Head and Lines are stored but were not read, because the messages of
	// an event that are read together have a limit in bytes.
	HeadOmitted bool
}

func (m *Message) heldBytes() int64 { return int64(len(m.Head) + len(m.Lines) + len(m.Body.Data)) }
