package certs

import (
	"testing"

	"github.com/miekg/dns"
)

func TestParseTSIGKey(t *testing.T) {
	t.Parallel()
	key, err := ParseTSIGKey(" Relay:HMAC-SHA256:c2VjcmV0\n")
	if want := (TSIGKey{"relay.", dns.HmacSHA256, "c2VjcmV0"}); err != nil || key != want {
		t.Errorf("%+v, %v", key, err)
	}
	for _, bad := range []string{"", "relay", "relay:c2VjcmV0", "relay:rot13:c2VjcmV0", ":hmac-sha256:c2VjcmV0", "relay:hmac-sha256:", "relay:hmac-sha256:no base64"} {
		if key, err := ParseTSIGKey(bad); err == nil {
			t.Errorf("%q: %+v", bad, key)
		}
	}
}
