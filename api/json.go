package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"relay/record"
)

// strictJSON decodes request bodies strictly. encoding/json alone would accept keys in
// any letter case, duplicate keys, and null where null is not allowed. huma decodes each
// body twice: as an any, to validate it against the schema (an error is 400), and then
// as the handler's type (an error is 422). The strict checks are part of the second one.
func strictJSON() huma.Format {
	var tables sync.Map // of reflect.Type to map[string]bool: one for each type of a body
	known := func(t reflect.Type) map[string]bool {
		if table, ok := tables.Load(t); ok {
			return table.(map[string]bool)
		}
		table, _ := tables.LoadOrStore(t, knownKeys(t))
		return table.(map[string]bool)
	}
	return huma.Format{
		Marshal: huma.DefaultJSONFormat.Marshal,
		Unmarshal: func(data []byte, v any) error {
			if loose, ok := v.(*any); ok {
				return decodeAny(data, loose)
			}
			if err := checkObjectKeys(data, known(reflect.TypeOf(v))); err != nil {
				return err
			}
			return json.Unmarshal(data, v)
		},
	}
}

// decodeAny decodes a body for the validation against its schema. JSON has to be UTF-8
// (RFC 8259, section 8.1), but encoding/json replaces invalid bytes silently. A number
// too large for a float64 is still JSON: it becomes null here, and the second decoding
// reports it where the schema allows null.
func decodeAny(data []byte, v *any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not UTF-8")
	}
	err := json.Unmarshal(data, v)
	if large := (*json.UnmarshalTypeError)(nil); errors.As(err, &large) {
		return nil
	}
	return err
}

// checkObjectKeys checks the keys of a JSON object: no duplicates, no known key in another
// letter case, null only where known allows it. Values that are no object are left to
// the schema; request bodies have no nested objects.
func checkObjectKeys(data []byte, known map[string]bool) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("the key %q is there twice", record.SafeTextMax(key, 60))
		}
		seen[key] = true
		switch null, ok := known[key]; {
		case ok && !null && string(value) == "null":
			return fmt.Errorf("the key %q cannot be null; leave it out", key)
		case !ok:
			if err := checkKeyCase(key, known); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkKeyCase rejects a key that encoding/json would accept for a known one.
func checkKeyCase(key string, known map[string]bool) error {
	for name := range known {
		if strings.EqualFold(name, key) {
			return fmt.Errorf("the key %q is not known; write %q", record.SafeTextMax(key, 60), name)
		}
	}
	return nil
}

// knownKeys gives the keys of the objects that become a t, and whether each may be null:
// where the schema says so, as it does of lists. Maps have no keys of their own.
func knownKeys(t reflect.Type) map[string]bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	keys := map[string]bool{}
	if t.Kind() != reflect.Struct {
		return keys
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		_, own := reflect.PointerTo(f.Type).MethodByName("UnmarshalJSON")
		keys[name] = own || f.Type.Kind() == reflect.Slice || f.Tag.Get("nullable") == "true"
	}
	return keys
}
