package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// setMember replaces one value of a JSON document, or adds a member to an object that lacks it. All other
// bytes stay as they are.
func setMember(doc []byte, path []string, value json.RawMessage) ([]byte, error) {
	if !json.Valid(value) {
		return nil, errors.New("the value is not JSON")
	}
	from, to := 0, len(doc)
	for i, step := range path {
		p, err := findChild(doc[from:to], step)
		switch {
		case err != nil:
			return nil, err
		case !p.found && (i < len(path)-1 || !p.object):
			return nil, errors.New("the body has no member or element " + strconv.Quote(step) + " there")
		case !p.found:
			name, _ := json.Marshal(step)
			added := slices.Concat(name, []byte(":"), value)
			if p.children > 0 {
				added = append([]byte(","), added...)
			}
			return slices.Concat(doc[:from+p.end], added, doc[from+p.end:]), nil
		}
		from, to = from+p.from, from+p.to
	}
	return slices.Concat(doc[:from], value, doc[to:]), nil
}

// place is a child of a JSON object or array.
type place struct {
	found    bool
	from, to int  // its value
	object   bool // the parent is an object
	children int  // of the parent
	end      int  // of the last child, or behind the opening bracket
}

// findChild finds the child of a name or index. Of members with the same name it is the last one, which is the
// one that most programs read.
func findChild(doc []byte, step string) (place, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	open, err := dec.Token()
	p := place{object: open == json.Delim('{'), end: int(dec.InputOffset())}
	if err != nil || !p.object && open != json.Delim('[') {
		return p, errors.New("there is no object or array that holds " + strconv.Quote(step))
	}
	var raw json.RawMessage
	for ; dec.More(); p.children++ {
		name := strconv.Itoa(p.children)
		if p.object {
			key, err := dec.Token()
			if err != nil {
				return p, err
			}
			name, _ = key.(string)
		}
		if err := dec.Decode(&raw); err != nil {
			return p, err
		}
		p.end = int(dec.InputOffset())
		if name == step {
			p.found, p.from, p.to = true, p.end-len(raw), p.end
		}
	}
	return p, nil
}
