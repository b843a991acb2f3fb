package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"relay/record"
)

var errNoJSON = errors.New("not two JSON bodies")

// fieldChanges lists the places at which two JSON values differ, and counts them. An
// error says that they are too deep to be told apart.
func fieldChanges(was, is []byte) (list []fieldChange, n int, err error) {
	left, right := map[string]string{}, map[string]string{}
	if err := errors.Join(flatten(left, was), flatten(right, is)); err != nil {
		return nil, 0, err
	}
	paths := make([]string, 0, len(left))
	for path := range left {
		paths = append(paths, path)
	}
	for path := range right {
		if _, ok := left[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if left[path] == right[path] {
			continue
		}
		if n++; n <= diffFields {
			list = append(list, fieldChange{
				Path: record.SafeTextMax(path, diffValue), Was: record.SafeTextMax(left[path], diffValue), Is: record.SafeTextMax(right[path], diffValue),
			})
		}
	}
	return list, n, nil
}

// flatten notes every value that is no object or array, and every empty one of
// these, by its path.
func flatten(into map[string]string, p []byte) error {
	dec := json.NewDecoder(bytes.NewReader(p))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	var walk func(path string, depth int, v any)
	walk = func(path string, depth int, v any) {
		object, _ := v.(map[string]any)
		array, _ := v.([]any)
		if len(object)+len(array) == 0 || depth == jsonDepth {
			into[path] = jsonText(v)
			return
		}
		for name, inner := range object {
			walk(memberPath(path, name), depth+1, inner)
		}
		for i, inner := range array {
			walk(path+"["+strconv.Itoa(i)+"]", depth+1, inner)
		}
	}
	walk("", 0, v)
	return nil
}

// memberPath is the path of a member; names that could be taken for more than one step
// stand in brackets and quotes.
func memberPath(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, `.[]"`):
		return path + "[" + jsonText(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// jsonText is a value as JSON with its < > & as they are.
func jsonText(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // what was decoded from JSON
	return strings.TrimSuffix(b.String(), "\n")
}
