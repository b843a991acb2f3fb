package wire

import (
	"bytes"
	"fmt"
	"io"

	"relay"
)

// Rebuild writes the exact bytes of a stored message, as they were transferred, to w. It writes head (nil =
// m.Head), and then the bytes of body in the framing of m. The reader body returns the decoded body; it may
// be nil if m.Body.Data is the whole body. A single write may be as small as a chunk-size line, so w should
// be buffered.
//
// An incomplete message is rebuilt as far as it is stored. If it ends after the data of a chunk, the part of
// the CRLF that Body.Stop gave to Tee follows. Errors of body and w are returned unchanged. The error is
// io.ErrUnexpectedEOF if a body whose state is complete has another size than m.Body.Size.
func Rebuild(w io.Writer, m *relay.Message, head []byte, body io.Reader) error {
	if head == nil {
		head = m.Head
	}
	if _, err := w.Write(head); err != nil || m.Framing == relay.FramingNone {
		return err
	}
	if body == nil {
		body = bytes.NewReader(m.Body.Data)
	}
	var passed int64
	var err error
	if m.Framing == relay.FramingChunked {
		passed, err = rebuildChunks(w, m.Lines, body)
	} else {
		passed, err = io.Copy(w, body)
	}
	if err != nil {
		return err
	}
	if b := &m.Body; b.State == relay.BodyComplete && b.Size != 0 && passed != b.Size {
		return fmt.Errorf("rebuild body: %d of %d bytes: %w", passed, b.Size, io.ErrUnexpectedEOF)
	}
	return nil
}

// rebuildChunks writes the stored lines and the data in the order of transfer, and returns the
// number of data bytes that it wrote.
func rebuildChunks(w io.Writer, lines []byte, body io.Reader) (passed int64, err error) {
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n') + 1
		size, ok := chunkSize(lines)
		if end == 0 || !ok || size == 0 {
			_, err = w.Write(lines) // the last chunk and the trailers, or an incomplete line
			return passed, err
		}
		if _, err = w.Write(lines[:end]); err != nil {
			return passed, err
		}
		lines = lines[end:]
		var n int64
		n, err = io.Copy(w, io.LimitReader(body, size))
		passed += n
		switch {
		case err != nil, n < size, len(lines) == 0:
			return passed, err
		case lines[0] == '\r': // no line begins like this: the body ended within the CRLF after chunk data, or directly after it
			_, err = w.Write(lines)
			return passed, err
		}
		if _, err = w.Write([]byte("\r\n")); err != nil {
			return passed, err
		}
	}
	return passed, nil
}
