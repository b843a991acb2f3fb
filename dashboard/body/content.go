package body

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"relay"
	"relay/record"
)

// content is what is at hand of a body and what it claims to be.
type content struct {
	raw     []byte // as stored, perhaps only its start
	plain   []byte // without content coding
	cut     bool   // plain is not all of it
	size    int64
	kind    string // media type in lower case, "" = unknown
	params  map[string]string
	coding  string // content coding that was taken off
	problem string // why it was not
}

// contentOf takes gzip and deflate off for the view, never more than the view holds.
func contentOf(head []byte, b *relay.Body) *content {
	c := &content{raw: b.Data[:min(len(b.Data), Shown)], size: b.Size}
	c.plain, c.cut = c.raw, int64(len(c.raw)) < b.Size
	c.kind, c.params = record.ContentType(head)
	coding := record.ContentCoding(head)
	if coding == "" {
		return c
	}
	r, decoded := record.DecodeContent(head, bytes.NewReader(c.raw))
	if !decoded {
		c.problem = "coded as " + record.SafeTextMax(coding, 40) + ", which this view cannot read"
		if strings.Contains("gzip x-gzip deflate", coding) {
			c.problem = "it says " + coding + ", but is not"
		}
		return c
	}
	out, err := io.ReadAll(io.LimitReader(r, Shown+1))
	if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || !c.cut) {
		c.problem = coding + " data that breaks off or is damaged"
	}
	c.coding, c.plain = coding, out[:min(len(out), Shown)]
	c.cut = c.cut || len(out) > Shown
	return c
}

// views are those that make sense, the best one first.
func (c *content) views() []string {
	switch {
	case ImageKind(c.raw) != "" && strings.HasPrefix(c.kind, "image/"):
		return []string{viewImage, viewHex}
	case strings.HasPrefix(c.kind, "multipart/") && c.params["boundary"] != "":
		return []string{viewParts, viewRaw, viewHex}
	case !record.IsReadable(c.plain, c.cut):
		return []string{viewHex, viewRaw}
	case c.isJSON() || c.isForm() || c.coding != "":
		return []string{viewPretty, viewRaw, viewHex}
	default:
		return []string{viewRaw, viewHex}
	}
}

func (c *content) isJSON() bool {
	if c.kind == "application/json" || strings.HasSuffix(c.kind, "+json") {
		return true
	}
	start := bytes.TrimLeft(c.plain[:min(len(c.plain), 1024)], " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[') && c.kind != "text/html" && !c.isForm()
}

func (c *content) isForm() bool { return c.kind == "application/x-www-form-urlencoded" }

// ImageKind is the type of a picture that may be shown: known by its first bytes and
// without script; "" for everything else.
func ImageKind(p []byte) string {
	switch kind := http.DetectContentType(p[:min(len(p), 512)]); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return ""
}
