package body

import (
	"net/http"
	"strings"

	"relay"
	reading "relay/record/body"
)

// content is the loaded part of a body, decoded.
type content struct {
	*reading.Reading
	raw  []byte // the stored bytes, which may be only the beginning of the body
	size int64
}

// contentOf reads a body up to the bound of the view.
func contentOf(head []byte, b *relay.Body) *content {
	raw := b.Data[:min(len(b.Data), Shown)]
	return &content{reading.Read(reading.LabelOf(head), raw, int64(len(raw)) < b.Size, Shown), raw, b.Size}
}

// views lists the views that suit the content, the best one first.
func (c *content) views() []string {
	switch {
	case ImageKind(c.raw) != "" && strings.HasPrefix(c.Label.Kind, "image/"):
		return []string{viewImage, viewHex}
	case c.Form == reading.Multipart:
		return []string{viewParts, viewRaw, viewHex}
	case c.Form == reading.Binary:
		return []string{viewHex, viewRaw}
	case c.Form == reading.JSON || c.Form == reading.JSONLines || c.Form == reading.URLEncoded || c.How() != "":
		return []string{viewPretty, viewRaw, viewHex}
	default:
		return []string{viewRaw, viewHex}
	}
}

// ImageKind returns the media type of an image that is safe to show: one that is recognised by its
// first bytes, and whose type cannot contain scripts. It returns "" for everything else.
func ImageKind(p []byte) string {
	switch kind := http.DetectContentType(p[:min(len(p), 512)]); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return ""
}
