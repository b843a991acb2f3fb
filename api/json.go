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

// strictJSON reads bodies by the letter: encoding/json alone would take keys in any
// case, the last one of two that are the same, and null for what cannot be null.
// huma reads each body twice: as an any, to hold it against its schema (an error is
// 400), and then as the type that the handler takes (an error is 422). What is JSON
// but not by the letter is found in the second reading.
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

// decodeAny reads a body for its schema. encoding/json puts another character where one
// is no UTF-8, which JSON has to be (RFC 8259, section 8.1). A number that is too large
// for it is JSON all the same: it is left null here, and found in the second reading
// where the schema takes that.
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

// checkObjectKeys checks the keys of the object that data is: none twice, none in another
// case than a known one, null only where it may be. known tells that of each key. What
// is no object is left to the schema; the bodies here hold no objects within.
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

// checkKeyCase refuses a key that encoding/json would take for a known one.
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
