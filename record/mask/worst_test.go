package mask

import (
	"testing"

	"relay/record/body"
	"relay/relaytest"
)

// TestWorstBytes: masking hostile input takes at most 100 ms of CPU time. The input is 1 MiB, or less where the
// masker never gets so much. The time includes learning the secrets in the input.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	const most, head, target = 1 << 20, 128 << 10, 16 << 10
	twice := func(mask func(m *Masker)) {
		m := New("hook.example.com")
		mask(m)
		m.Learned()
		mask(m)
	}
	read := func(label body.Label, form body.Form) func(p []byte) {
		return func(p []byte) {
			r := &body.Reading{Label: label, Form: form, Text: p}
			twice(func(m *Masker) { m.Body(r) })
		}
	}
	for _, c := range []struct {
		name string
		most int
		f    func(p []byte)
	}{
		{"JSON", most, read(body.Label{}, body.JSON)},
		{"form", most, read(body.Label{}, body.URLEncoded)},
		{"text", most, read(body.Label{}, body.Text)},
		{"lines", most, func(p []byte) {
			r := body.Read(body.NewLabel("application/x-ndjson"), p, false, most)
			twice(func(m *Masker) { m.Body(r) })
		}},
		{"multipart", most, func(p []byte) {
			r := body.Read(body.NewLabel("multipart/form-data; boundary=b"), p, false, most)
			twice(func(m *Masker) { m.Body(r) })
		}},
		{"secrets", most / 2, func(p []byte) { // every byte of p is learned as part of a secret, and is then masked
			m := New("")
			for i := 0; i < len(p); i += 64 {
				m.learn(p[i:min(len(p), i+64)])
			}
			m.Learned()
			m.Body(&body.Reading{Form: body.Text, Text: p})
		}},
		{"header line", head, func(p []byte) {
			twice(func(m *Masker) { m.Header("Location", string(p), "hook.example.com") })
		}},
		{"secret header line", head, func(p []byte) {
			twice(func(m *Masker) { m.Header("Cookie", string(p), "hook.example.com") })
		}},
		{"name of a header line", head, func(p []byte) {
			twice(func(m *Masker) { m.Header(string(p), "a", "hook.example.com"); m.Text(string(p)) })
		}},
		{"target", target, func(p []byte) { twice(func(m *Masker) { m.Target("/?" + string(p)) }) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, c.most, c.f)
		})
	}
}
