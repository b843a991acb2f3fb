package compose_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"relay/compose"
	"relay/record"
	"relay/signature"
)

// TestSamples: each sample is a request that its sender could sign. The signed request is recognised,
// with its event type.
func TestSamples(t *testing.T) {
	t.Parallel()
	senders := map[string]bool{}
	var names []string
	for _, s := range compose.Samples("") {
		senders[s.Provider], names = true, append(names, s.Name())
		r := s.Request("a.example.com")
		p := r.SenderNamed(s.Provider)
		if p == nil {
			t.Errorf("%s: no such sender", s.Name())
			continue
		}
		scheme, err := r.Scheme(p)
		if err == nil {
			err = r.Sign(scheme, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "https://a.example.com/", time.Now())
		}
		if err == nil {
			err = r.Check(compose.Limits{Head: 8 << 10, Target: 100, Body: 1 << 20})
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name(), err)
			continue
		}
		if got := record.Recognise(r.Head, r.Body); got.Name != s.Provider || s.Provider != "standard-webhooks" && !strings.Contains(got.EventType, s.Type) {
			t.Errorf("%s is recognised as %s %s", s.Name(), got.Name, got.EventType)
		}
		if p.Name == "stripe" && !r.HasSignature() {
			t.Errorf("%s has no signature", s.Name())
		}
		if compose.FindSample(s.Name()) != s {
			t.Errorf("%s is not found", s.Name())
		}
	}
	if len(senders) < 12 || !slices.IsSorted(names) || signature.Find("stripe", nil) == nil {
		t.Errorf("%d senders, %q", len(senders), names)
	}
}
