package relay

import "fmt"

// Verdicts of a Finding.
const (
	VerdictOK   = "ok"
	VerdictWarn = "warn" // the checked thing works, but needs attention
	VerdictFail = "fail"
	VerdictSkip = "skip" // could not be checked, or there is nothing to check
)

// Finding is the result of one check of relay doctor or relayd doctor, in words. It holds no secrets.
// Its texts are not escaped: escape them before you print them.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	Fix     string `json:"fix"` // "" = nothing to do
}

// Findingf returns a Finding, still without the name of its check.
func Findingf(verdict, fix, format string, args ...any) Finding {
	return Finding{Verdict: verdict, Reason: fmt.Sprintf(format, args...), Fix: fix}
}
