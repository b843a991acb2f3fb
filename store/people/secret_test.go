package people

import (
	"strings"
	"testing"
)

// TestNewSecretIsNoFlag: a secret without a prefix, such as that of a share, does not begin with the character that
// begins a flag. One of 64 would.
func TestNewSecretIsNoFlag(t *testing.T) {
	t.Parallel()
	for range 2000 {
		if s := NewSecret(""); len(s) != 43 || strings.HasPrefix(s, "-") {
			t.Fatal(s)
		}
	}
}
