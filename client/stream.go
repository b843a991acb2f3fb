package client

import (
	"bufio"
	"bytes"
	"io"
)

// readStream reads server-sent events (HTML Living Standard, section 9.2.6) and
// gives name and data of each to take, until the stream ends or take fails. The
// slices are valid during the call only.
func readStream(r io.Reader, take func(name string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var name string
	var data []byte
	for lines.Scan() {
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if len(data) > 0 {
				if err := take(name, data); err != nil {
					return err
				}
			}
			name, data = "", data[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	err := lines.Err()
	if err == nil {
		err = io.EOF
	}
	return &Error{Exit: ExitUnreachable, Text: "the stream of the relay has ended", Cause: err}
}
