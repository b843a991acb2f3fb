package body

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const (
	maxCodings = 4        // largest number of content codings of one body
	maxWindow  = 8 << 20  // largest number of bytes that a zstd frame may refer back to (RFC 9659)
	probeBytes = 4 << 10  // bytes at the start of the data by which open decides whether the data has a coding
	betweenAll = 64 << 10 // bytes by which the limit of a decoder is larger than that of the decoder that reads its output
)

// codingError is an error in the data of one content coding.
type codingError struct {
	coding string
	err    error
}

func (e *codingError) Error() string {
	if endsEarly(e.err) {
		return "the " + e.coding + " data ends early"
	}
	return "the " + e.coding + " data is damaged"
}

func (e *codingError) Unwrap() error { return e.err }

// codedReader adds the name of the coding to the errors of a decoder.
type codedReader struct {
	coding string
	r      io.Reader
}

func (c *codedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if _, inner := errors.AsType[*codingError](err); err != nil && err != io.EOF && !inner {
		err = &codingError{c.coding, err}
	}
	return n, err
}

// uncode decodes the content codings of a label, the last one first. The argument most limits the output of the
// last decoder, in bytes. The other decoders may output little more, so that the time is proportional to that
// limit. The result undone lists the codings that were decoded. If a coding cannot be decoded, the data keeps
// this coding, and fault has the reason.
func uncode(codings []string, src io.Reader, most int64) (r io.Reader, undone []string, fault string) {
	if len(codings) > maxCodings {
		return src, nil, fmt.Sprintf("it has %d content codings, and no more than %d are undone here", len(codings), maxCodings)
	}
	r = src
	for i := len(codings) - 1; i >= 0; i-- {
		coding := codings[i]
		in := bufio.NewReader(r)
		decoder, known := open(coding, in)
		if decoder == nil {
			if fault = "it says " + quote(coding) + ", but is not"; !known {
				fault = "it is coded as " + quote(coding) + ", which cannot be read here"
			}
			return in, undone, fault
		}
		r, undone = io.LimitReader(&codedReader{coding, decoder}, most+int64(i)*betweenAll), append(undone, coding)
	}
	return r, undone, ""
}

// Uncoded decodes all content codings of a body, and returns the result. It returns an error if the result
// has more bytes than most says, or if not all codings can be decoded. It does not convert the charset or
// remove the byte order mark.
func Uncoded(l Label, p []byte, most int) ([]byte, error) {
	src, undone, fault := uncode(l.Codings, bytes.NewReader(p), int64(most)+1)
	if fault != "" || len(undone) < len(l.Codings) {
		return nil, fmt.Errorf("the content coding of the body cannot be undone: %s", fault)
	}
	plain, err := io.ReadAll(src)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the content coding of the body cannot be undone: %w", err)
	case len(plain) > most:
		return nil, fmt.Errorf("the body without its content coding has more than %d bytes", most)
	}
	return plain, nil
}

// open opens the decoder of one coding. If the data does not begin like data of this coding, decoder is nil
// and nothing was read from the reader in. known is false if Relay has no decoder for the coding.
func open(coding string, in *bufio.Reader) (decoder io.Reader, known bool) {
	probe, _ := in.Peek(probeBytes)
	marked := func(mark string) bool { return bytes.HasPrefix(probe, []byte(mark)) }
	var begin func(r io.Reader) (io.Reader, error)
	fits := false
	switch coding {
	case "gzip", "x-gzip":
		begin = func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }
		fits = marked("\x1f\x8b\x08")
	case "deflate": // the zlib header is required (RFC 9110, 8.4.1.2), but many senders leave it out
		if fits = len(probe) >= 2 && probe[0]&15 == 8 && (int(probe[0])<<8+int(probe[1]))%31 == 0; fits {
			begin = func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }
			break
		}
		begin = func(r io.Reader) (io.Reader, error) { return flate.NewReader(r), nil }
		fits = decodes(flate.NewReader(bytes.NewReader(probe)))
	case "br":
		begin = func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil }
		fits = decodes(brotli.NewReader(bytes.NewReader(probe)))
	case "zstd":
		begin = func(r io.Reader) (io.Reader, error) {
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		}
		// The data must begin with the magic number of a frame or of a skippable frame.
		fits = marked("\x28\xb5\x2f\xfd") || len(probe) > 3 && probe[0]&0xf0 == 0x50 && bytes.HasPrefix(probe[1:], []byte("\x2a\x4d\x18"))
	default:
		return nil, false
	}
	if !fits {
		return nil, true
	}
	if _, err := begin(bytes.NewReader(probe)); err != nil && !endsEarly(err) {
		return nil, true
	}
	decoder, err := begin(in)
	if err != nil {
		return failed{err}, true
	}
	return decoder, true
}

// failed is the decoder for data whose header is incomplete: every read returns err.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// decodes reports whether a decoder can read the beginning of some data that has no magic number.
func decodes(decoder io.Reader) bool {
	n, err := io.ReadFull(decoder, make([]byte, 512))
	return err == nil || err == io.EOF || n > 0 && endsEarly(err)
}

func endsEarly(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) }
