package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errLongLine is final: the relay would send the same line again.
var errLongLine = Errorf(ExitFailure, "the relay sent a line of more than %d MiB", maxLine>>20)

// readStream reads server-sent events (HTML Living Standard, section 9.2.6) and passes
// id, name and data of each to take, until the stream ends or take fails. The slices
// are valid during the call only. An event may have maxLine bytes.
func readStream(r io.Reader, take func(id, name string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var id, name string
	var data []byte
	for lines.Scan() {
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if len(data) > 0 {
				if err := take(id, name, data); err != nil {
					return err
				}
			}
			name, data = "", data[:0]
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
				return errLongLine
			}
			data = append(data, value...)
		}
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return errLongLine
	case err == nil:
		err = io.EOF
	}
	return &Error{Exit: ExitUnreachable, Text: "the stream of the relay has ended", Cause: err}
}
