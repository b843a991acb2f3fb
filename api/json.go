package api

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// Keys of bodies have one spelling; encoding/json alone takes them in any letter case. It
// is a setting of the whole program.
func init() { huma.ValidateStrictCasing = true }

// strictJSON decodes request bodies. huma decodes each of them twice: as an any, to
// validate it against the schema (an error is 400), and then as the handler's type (an
// error is 422). JSON has to be UTF-8 (RFC 8259, section 8.1), but encoding/json replaces
// invalid bytes silently. A number too large for a float64 is still JSON: it becomes null
// for the validation, and the second decoding reports it where the schema allows null.
func strictJSON() huma.Format {
	return huma.Format{
		Marshal: huma.DefaultJSONFormat.Marshal,
		Unmarshal: func(data []byte, v any) error {
			if !utf8.Valid(data) {
				return errors.New("the body is not UTF-8")
			}
			err := json.Unmarshal(data, v)
			var large *json.UnmarshalTypeError
			if _, validates := v.(*any); validates && errors.As(err, &large) {
				return nil
			}
			return err
		},
	}
}
