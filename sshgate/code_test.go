package sshgate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestLateApprovalCounts: the time runs out, or the client leaves, while the key is
// being registered: what comes of that is what people are told.
func TestLateApprovalCounts(t *testing.T) {
	t.Parallel()
	for _, registered := range []bool{true, false} {
		e := newEnrolments()
		w := e.add(someKey(t), relay.Enrolment{ExpiresAt: time.Now().Add(time.Hour)})
		if _, err := e.claim(w.Link, w.code); err != nil {
			t.Fatal(err)
		}
		if _, err := e.claim(w.Link, w.code); relay.AsError(err) == nil || relay.AsError(err).Code != relay.CodeConflict {
			t.Errorf("a second approval beside the first: %v", err)
		}
		e.end(w, enrolExpired)
		select {
		case how := <-w.ended:
			t.Errorf("ended early: %s", how)
		default:
		}
		e.settle(w, registered)
		if want, how := map[bool]enrolEnd{true: enrolApproved, false: enrolExpired}[registered], <-w.ended; how != want {
			t.Errorf("ended %s, want %s", how, want)
		}
		e.settle(w, true)
		e.end(w, enrolLeft)
	}
}

func TestCodesAndLinks(t *testing.T) {
	t.Parallel()
	var seen []string
	for range 1000 {
		code, link := newCode(), newLink()
		if len(code) != 8 || strings.ContainsAny(code, "01IO") || !codeLine.MatchString("Code: "+shownCode(code)) {
			t.Fatalf("code %q", code)
		}
		if len(link)*5 < 128 || slices.Contains(seen, link) || slices.Contains(seen, code) {
			t.Fatalf("link %q", link)
		}
		if plainCode(" "+strings.ToLower(shownCode(code))+" ") != code {
			t.Fatalf("typed %q", shownCode(code))
		}
		seen = append(seen, link, code)
	}
}

func FuzzApprove(f *testing.F) {
	f.Add("", "")
	f.Add("abc", "ABCD-EFGH")
	f.Fuzz(func(t *testing.T, link, code string) {
		e := newEnrolments()
		w := e.add(someKey(t), relay.Enrolment{ExpiresAt: time.Now().Add(time.Hour)})
		if _, err := e.claim(link, code); err == nil {
			t.Error("a guess was right")
		}
		if _, err := e.claim(w.Link, code); err == nil && plainCode(code) != w.code {
			t.Error("a wrong code was taken")
		}
	})
}
