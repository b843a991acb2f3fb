package api

import (
	"testing"
)

// TestKeysOfABodyAreFoundOnce: reading a body into a type with nine keys needs at most two more allocations
// than into a type with one key, because the keys of a type are found by reflection only once.
func TestKeysOfABodyAreFoundOnce(t *testing.T) {
	read := strictJSON().Unmarshal
	data := []byte(`{"view":true}`)
	allocs := func(of func() any) float64 {
		return testing.AllocsPerRun(100, func() {
			if err := read(data, of()); err != nil {
				t.Fatal(err)
			}
		})
	}
	small, large := allocs(func() any {
		return &struct {
			View bool `json:"view"`
		}{}
	}), allocs(func() any {
		return &struct {
			View                   bool `json:"view"`
			A, B, C, D, E, F, G, H *string
		}{}
	})
	if large > small+2 {
		t.Errorf("%.0f allocations for one key, %.0f for nine", small, large)
	}
}
