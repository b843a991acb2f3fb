package body

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// maxXML bounds the XML whose form is checked, in bytes.
const maxXML = 256 << 10

// xmlFault returns the first error in a text as XML; nil = well-formed. It also returns nil for
// a text that it does not check, because it is long or declares its own entities.
func xmlFault(p []byte, cut bool) *Fault {
	if len(p) > maxXML || bytes.Contains(p, []byte("<!ENTITY")) {
		return nil
	}
	d := xml.NewDecoder(bytes.NewReader(p))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // the text is in UTF-8 already
	for {
		_, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			continue
		}
		at := int(d.InputOffset())
		if cut && at >= len(p)-1 {
			return nil
		}
		why := err.Error()
		if syntax, is := errors.AsType[*xml.SyntaxError](err); is {
			why = syntax.Msg
		}
		line, column := placeOf(p, at)
		return &Fault{at, fmt.Sprintf("Not XML: line %d, column %d: %s", line, column, quote(why))}
	}
}
