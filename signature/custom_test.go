package signature

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A custom definition signs and verifies. A changed body, a wrong secret and a time outside the tolerance are
// refused. One digest equals that of openssl.
func TestCustom(t *testing.T) {
	t.Parallel()
	at, other := time.Unix(1_700_000_000, 0), strings.NewReplacer("AAEC", "BBEC", "secret", "Secret", "00ff", "11ff")
	for definition, secret := range map[string]string{
		`{"header":"X-Sig","template":"{body}"}`:                                                                                   "secret",
		`{"header":"X-Sig","template":"{body}","hash":"sha1","form":"base64","prefix":"sha1="}`:                                    "secret",
		`{"header":"X-Sig","template":"{t}.{body}","prefix":"v1=","toleranceSeconds":300}`:                                         "secret",
		`{"header":"X-Sig","template":"v0:{id:X-Id}:{t:X-Time}:{method}:{url}:{body}","hash":"sha512","form":"base64url"}`:         "secret",
		`{"header":"X-Sig","template":"{form}","key":"hex"}`:                                                                       "00ff00ff",
		`{"header":"X-Sig","template":"{body}","key":"whsec","toleranceSeconds":0}`:                                                "whsec_AAECAwQFBgcICQoLDA0ODw==",
		`{"header":"X-Sig","template":"{t:X-Time}{body}","key":"base64","toleranceSeconds":5.5,"form":"hex","prefix":"hmac-md5="}`: "AAEC",
	} {
		p, err := ReadCustom([]byte(definition))
		if err != nil {
			t.Errorf("%s: %v", definition, err)
			continue
		}
		if err := p.CheckSecret(secret); err != nil {
			t.Error(definition, err)
		}
		s := &p.Schemes[0]
		lines := []Field{{"X-Id", "msg_1"}}
		r := &Request{Method: "POST", URL: "https://a.example/b", Body: []byte("a=1&b=2"), Line: Lines(lines)}
		c, err := Sign(s, secret, r, at)
		if err != nil {
			t.Errorf("%s: %v", definition, err)
			continue
		}
		signed := *r
		signed.Line = Lines(append(c.Lines, lines...))
		if v := Verify(s, []Secret{{Value: secret}}, &signed, at); v.Verdict != Valid {
			t.Errorf("%s: %+v", definition, v)
		}
		changed := signed
		changed.Body = []byte("a=1&b=3")
		if v := Verify(s, []Secret{{Value: secret}}, &changed, at); v.Verdict != Invalid {
			t.Errorf("%s, changed: %+v", definition, v)
		}
		if v := Verify(s, []Secret{{Value: other.Replace(secret)}}, &signed, at); v.Verdict != Invalid {
			t.Errorf("%s, another secret: %+v", definition, v)
		}
		if v := Verify(s, []Secret{{Value: secret}}, &signed, at.Add(time.Hour)); (v.Verdict == Expired) != (s.Old > 0) {
			t.Errorf("%s, an hour later: %+v", definition, v)
		}
		if v := Verify(s, []Secret{{Value: secret}}, &signed, at.Add(-time.Hour)); (v.Verdict == Expired) != (s.Old > 0) {
			t.Errorf("%s, an hour earlier: %+v", definition, v)
		}
	}
	p, _ := ReadCustom([]byte(`{"header":"X-Sig","template":"{body}"}`))
	r := &Request{Body: []byte("hello"), Line: Lines([]Field{{"x-sig", "88aab3ede8d3adf94d26ab90d3bafd4a2083070c3bcce9c014ee04a443847c0b"}})}
	if v := Verify(&p.Schemes[0], []Secret{{Value: "secret"}}, r, at); v.Verdict != Valid { // expected digest: printf hello | openssl dgst -sha256 -hmac secret
		t.Errorf("%+v", v)
	}
}

// A form that cannot be parsed is signed as raw bytes. Otherwise one signature would be valid for every such
// body.
func TestCustomOfABrokenForm(t *testing.T) {
	t.Parallel()
	p, err := ReadCustom([]byte(`{"header":"X-Sig","template":"{form}"}`))
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Body: []byte("a=1;b=%zz"), Line: Lines(nil)}
	c, err := Sign(&p.Schemes[0], "secret", r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{"a=1;b=%zz": Valid, "a=2;b=%zz": Invalid, "": Invalid} {
		if v := Verify(&p.Schemes[0], []Secret{{Value: "secret"}}, &Request{Body: []byte(body), Line: Lines(c.Lines)}, time.Now()); v.Verdict != want {
			t.Errorf("%q: %+v", body, v)
		}
	}
}

// An invalid definition is refused, and the error names the wrong member.
func TestCustomRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	for definition, member := range map[string]string{
		`{`: "", `[]`: "", `{"header":"A","template":"{body}","x":1}`: "", `{"header":"A","template":"{body}"}{}`: "", `"` + strings.Repeat("x", 5000) + `"`: "",
		`{"template":"{body}"}`: "header", `{"header":"A B","template":"{body}"}`: "header", `{"header":"` + long + `","template":"{body}"}`: "header",
		`{"header":"A","template":"{body}","hash":"md5"}`: "hash", `{"header":"A","template":"{body}","form":"x"}`: "form",
		`{"header":"A","template":"{body}","key":"x"}`: "key", `{"header":"A","template":"{body}","prefix":"a b"}`: "prefix",
		`{"header":"A","template":"{t}{body}","prefix":"v=","toleranceSeconds":-1}`: "toleranceSeconds", `{"header":"A","template":"{body}","toleranceSeconds":5}`: "toleranceSeconds",
		`{"header":"A"}`: "template", `{"header":"A","template":"x"}`: "template", `{"header":"A","template":"{body}{body}"}`: "template",
		`{"header":"A","template":"{body}` + long + `"}`: "template", `{"header":"A","template":"{body"}`: "template", `{"header":"A","template":"{secret}{body}"}`: "template",
		`{"header":"A","template":"{id}{body}"}`: "template", `{"header":"A","template":"{t}{body}"}`: "template", `{"header":"A","template":"{t:a b}{body}"}`: "template",
		`{"header":"Content-Length","template":"{body}"}`: "header", `{"header":"A","template":"{t:transfer-encoding}{body}"}`: "template",
		`{"header":"A","template":"{body:X}"}`: "template", `{"header":"A","template":"{t}{body}","prefix":"t="}`: "template",
	} {
		_, err := ReadCustom([]byte(definition))
		if bad, ok := errors.AsType[*CustomError](err); !ok || bad.Member != member || bad.Message == "" {
			t.Errorf("%.80s: %v", definition, err)
		}
	}
}
