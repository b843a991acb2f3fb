package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// maxLine bounds one line of a stream, in bytes.
	maxLine = 16 << 20
	// quietStream is the time without a byte after which a live stream counts as lost. The relay sends a comment
	// every 15 s.
	quietStream = 45 * time.Second
)

// ErrLongLine must not lead to a retry, because the relay would send the same line again.
var ErrLongLine = Errorf(ExitFailure, "the relay sent a line of more than %d MiB", maxLine>>20)

// Stream opens the live stream of the events that a query of GET /events selects. The stream begins after the
// item with the id in after, or now if after is "". The method calls the function begun when the stream is open,
// and then the function take for each item. It returns when the stream ends, or when begun or take fails.
func (a *API) Stream(ctx context.Context, query, after string, begun func() error, take func(id, name string, data []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := a.Request(ctx, http.MethodGet, "/stream"+query, nil, after)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := begun(); err != nil {
		return err
	}
	quiet := time.AfterFunc(quietStream, cancel)
	err = readStream(&silenceReader{resp.Body, quiet}, take)
	if !quiet.Stop() {
		return Errorf(ExitUnreachable, "the relay has been silent for %d s", int(quietStream.Seconds()))
	}
	return err
}

// silenceReader restarts a timer at each read.
type silenceReader struct {
	io.Reader
	quiet *time.Timer
}

// Read restarts the timer and reads.
func (h *silenceReader) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.quiet.Reset(quietStream)
	}
	return n, err
}

// readStream reads server-sent events (HTML Living Standard, section 9.2.6) and passes id, name and data of
// each event to the function take, until the stream ends or take fails; the name is empty for an id without
// data. The slices are valid during the call only. An event may have up to maxLine bytes.
func readStream(r io.Reader, take func(id, name string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var id, before, name string
	var data []byte
	for lines.Scan() {
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if len(data) > 0 || id != before {
				if err := take(id, name, data); err != nil {
					return err
				}
			}
			before, name, data = id, "", data[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			if !bytes.ContainsRune(value, 0) {
				id = string(value)
			}
		case "event":
			name = string(value)
		case "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			if len(data)+len(value) > maxLine {
				return ErrLongLine
			}
			data = append(data, value...)
		}
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return ErrLongLine
	case err == nil:
		err = io.EOF
	}
	return &Error{Exit: ExitUnreachable, Text: "the stream of the relay has ended", Cause: err}
}
