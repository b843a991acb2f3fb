package signature

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// vector is a signed request from another implementation; see testdata/vectors.py.
type vector struct {
	Sender, Line      string // name of the sender, and Header of the scheme
	Kind, Source      string
	At                time.Time
	Secret, URL, Body string
	Lines             [][2]string
	Change            [2]string // a text of the request, and a replacement that makes the request invalid
}

func readVectors(t *testing.T) (list []vector) {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (v *vector) scheme() *Scheme {
	for i := range Senders {
		for n := range Senders[i].Schemes {
			if s := &Senders[i].Schemes[n]; Senders[i].Name == v.Sender && s.Header == v.Line && s.Oracle == "" {
				return s
			}
		}
	}
	return nil
}

func (v *vector) message(change func(string) string) *message {
	m := &message{Method: "POST", URL: change(v.URL), Body: []byte(change(v.Body))}
	for _, l := range v.Lines {
		m.Lines = append(m.Lines, Field{l[0], change(l[1])})
	}
	return m
}

func as(text string) string { return text }

// TestVectors checks each row of the table that no library of its sender checks. A foreign signature is
// accepted. It is refused after a change, with another secret and, if the sender has a tolerance, when it is
// old. This package makes an identical signature for the same request.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		t.Run(v.Sender+" "+v.Line, func(t *testing.T) {
			t.Parallel()
			s := v.scheme()
			if s == nil {
				t.Fatal("the table has no such row")
			}
			verify := func(secret string, m *message, at time.Time, want string) {
				t.Helper()
				got := Verify(s, []Secret{{Value: secret}}, m.request(), at)
				if text := got.Verdict + " " + got.Reason; text != want {
					t.Errorf("%s, want %s", text, want)
				}
			}
			request := v.message(as)
			verify(v.Secret, request, v.At, "valid ok")
			verify(otherSecretOf(s), request, v.At, "invalid wrong-secret")
			changed := v.message(func(text string) string { return strings.Replace(text, v.Change[0], v.Change[1], 1) })
			verify(v.Secret, changed, v.At, "invalid wrong-secret")
			if s.Old > 0 {
				verify(v.Secret, request, v.At.Add(s.Old), "valid ok")
				verify(v.Secret, request, v.At.Add(s.Old+time.Second), "expired time-too-old")
			}
			v.testSign(t, s, request)
		})
	}
}

// testSign compares the signature that this package makes with the vector, if Relay can sign for the sender.
func (v *vector) testSign(t *testing.T, s *Scheme, request *message) {
	if s.CanSign() == SignNo || s.Unit == Instant && v.Kind == "published" { // the published time has a zone, but this package writes UTC
		return
	}
	made, err := Sign(s, v.Secret, request.request(), v.At)
	if err != nil {
		t.Fatal(err)
	}
	again := apply(request, made)
	got, want := s.read(again.request()), s.read(request.request())
	if strings.Join(got.digests, " ") != strings.Join(want.digests, " ") || got.time != want.time {
		t.Errorf("signed %q at %q, want %q at %q", got.digests, got.time, want.digests, want.time)
	}
}

// TestEachRowHasItsVector: a row of the table has one vector, or none if a library of its sender checks the
// row or if only the sender's network could verify it.
func TestEachRowHasItsVector(t *testing.T) {
	t.Parallel()
	count := map[*Scheme]int{}
	kinds := map[string]int{}
	for _, v := range readVectors(t) {
		count[v.scheme()]++
		kinds[v.Kind]++
		if _, err := url.Parse(strings.Fields(v.Source)[0]); err != nil || v.Kind != "published" && v.Kind != "computed" || !strings.HasPrefix(v.Source, "https://") {
			t.Errorf("%s: %s from %q", v.Sender, v.Kind, v.Source)
		}
	}
	if count[nil] > 0 {
		t.Errorf("%d vectors have no row", count[nil])
	}
	for i := range Senders {
		for n := range Senders[i].Schemes {
			s, want := &Senders[i].Schemes[n], 1
			if s.Oracle != "" || s.Digest == Network {
				want = 0
			}
			if s.Oracle != "" && s.Oracle != library || count[s] != want {
				t.Errorf("%s %s is checked by %q and has %d vectors", Senders[i].Name, s.Header, s.CheckedWith(), count[s])
			}
		}
	}
	t.Logf("%v", kinds)
}

// TestVectorsAreThoseOfTheScript compares testdata/vectors.json with the output of testdata/vectors.py.
func TestVectorsAreThoseOfTheScript(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	got, err := exec.CommandContext(t.Context(), python, "testdata/vectors.py").Output()
	want, _ := os.ReadFile("testdata/vectors.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("run python3 vectors.py > vectors.json in signature/testdata: %v", err)
	}
}
