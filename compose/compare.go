package compose

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"relay/wire"
)

// Compare lists the differences between two complete requests, in the format of Request.Changes. It leaves out
// Content-Length and Transfer-Encoding, because they follow from the body.
func Compare(old, now *Request) []string {
	var list []string
	if old.Method() != now.Method() {
		list = append(list, "method")
	}
	if old.Path() != now.Path() {
		list = append(list, "path")
	}
	before, after := linesByName(old), linesByName(now)
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Equal(before[name], after[name]) && !framing(name) {
			list = append(list, "header:"+name[:min(len(name), maxName)])
		}
	}
	if len(list) > maxHeaders {
		list = list[:maxHeaders]
	}
	if !bytes.Equal(old.Body, now.Body) {
		list = append(list, "body")
	}
	return list
}

func linesByName(r *Request) map[string][]string {
	lines := map[string][]string{}
	for _, f := range wire.Fields(r.Head) {
		name := strings.ToLower(string(f.Name))
		lines[name] = append(lines[name], string(f.Value))
	}
	return lines
}
