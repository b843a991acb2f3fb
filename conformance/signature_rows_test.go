package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/signature"
)

// triedRow is how a row of the signature table (signature.Senders) is tested: the library or test vector, and
// the result of each case.
type triedRow struct {
	oracle   string
	library  bool
	accepted map[string]bool // whether the library or the vector accepted each case
}

// TestEachSignatureRowIsTried prints the library or the test vector that tests each row of the signature
// table. It fails if a row lacks a case or a case has the wrong result. For rows with a Node library it takes
// the expected results, because TestSignatureOracles runs these libraries.
func TestEachSignatureRowIsTried(t *testing.T) {
	t.Parallel()
	rows := map[*signature.Scheme]*triedRow{}
	for _, o := range oracles() {
		rows[schemeOf(t, o)] = rowOfNode(t, o.name, casesOf(t, o))
	}
	pairs := keyPairCases(t)
	for _, name := range []string{"discord", "sendgrid"} {
		rows[&signature.Find(name, nil).Schemes[0]] = rowOfNode(t, name, pairs)
	}
	for _, g := range goRows() {
		row := &triedRow{oracle: goLibrary(t, g.name), library: true, accepted: map[string]bool{}}
		for what, err := range g.answers(t) {
			row.accepted[what] = err == nil
		}
		rows[g.scheme] = row
	}
	addVectors(t, rows)
	var table strings.Builder
	libraries := 0
	for i := range signature.Senders {
		for n := range signature.Senders[i].Schemes {
			s := &signature.Senders[i].Schemes[n]
			if s.Digest == signature.Network {
				continue // a row whose key comes from the sender's server cannot be checked without a network
			}
			row := rows[s]
			name := signature.Senders[i].Name + " " + s.Header
			if row == nil {
				t.Errorf("%s is tried by nothing", name)
				continue
			}
			if row.library {
				libraries++
			}
			fmt.Fprintf(&table, "%-52s %s", name, row.oracle)
			for _, what := range []string{caseSigned, caseChanged, caseSecret, caseOld} {
				accepted, tried := row.accepted[what]
				if what == caseOld && s.Old == 0 {
					continue
				}
				if !tried || accepted != (what == caseSigned) {
					t.Errorf("%s, %s: tried %v, accepted %v", name, what, tried, accepted)
				}
				fmt.Fprintf(&table, "; %s: %s", what, map[bool]string{true: "accepted", false: "refused"}[accepted])
			}
			table.WriteString("\n")
		}
	}
	if libraries < 30 {
		t.Errorf("libraries hold %d rows, want 30", libraries)
	}
	t.Logf("%d rows, %d by libraries\n%s", strings.Count(table.String(), "\n"), libraries, table.String())
}

// rowOfNode returns the triedRow of the Node library with the given name. Its results are those that the cases
// expect.
func rowOfNode(t *testing.T, name string, cases []oracleCase) *triedRow {
	t.Helper()
	row := &triedRow{oracle: nodeLibrary(t, name), library: true, accepted: map[string]bool{}}
	for _, c := range cases {
		if c.Oracle == name {
			row.accepted[c.what] = c.accepted
		}
	}
	return row
}

// nodeLibrary returns the name and version of the library that verify.cjs uses for an oracle.
func nodeLibrary(t *testing.T, oracle string) string {
	t.Helper()
	script, err := os.ReadFile("testdata/oracles/verify.cjs")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Dependencies map[string]string }
	raw, err := os.ReadFile("testdata/oracles/package.json")
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)\n  '?` + oracle + `'?: .*?load\('((?:@[^'/]*/)?[^'/]*)`).FindSubmatch(script)
	if found == nil || list.Dependencies[string(found[1])] == "" {
		t.Fatalf("verify.cjs and package.json have no library for %s", oracle)
	}
	return string(found[1]) + " " + list.Dependencies[string(found[1])]
}

// goLibrary returns the name and version of the linked Go library of a provider.
func goLibrary(t *testing.T, provider string) string {
	t.Helper()
	list, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		module := strings.TrimSpace(line)
		if strings.Contains(module, "/"+provider) || provider == "github" && strings.Contains(module, "/go-github") {
			return module
		}
	}
	t.Fatalf("go.mod has no library for %s", provider)
	return ""
}

// addVectors adds the rows that are tested with the vectors of package signature, because the sender has no
// library.
func addVectors(t *testing.T, rows map[*signature.Scheme]*triedRow) {
	t.Helper()
	var vectors []struct {
		Sender, Line, Kind, Source, Secret, URL, Body string
		At                                            time.Time
		Lines                                         [][2]string
		Change                                        [2]string
	}
	raw, err := os.ReadFile("../signature/testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(raw, &vectors)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		s := vectorScheme(v.Sender, v.Line)
		if s == nil {
			t.Errorf("no row for the vector of %s", v.Sender)
			continue
		}
		accepted := func(secret string, change *strings.Replacer, at time.Time) bool {
			var fields []signature.Field
			for _, l := range v.Lines {
				fields = append(fields, signature.Field{Name: l[0], Value: change.Replace(l[1])})
			}
			r := &signature.Request{Method: "POST", URL: change.Replace(v.URL), Body: []byte(change.Replace(v.Body)), Line: signature.Lines(fields)}
			return signature.Verify(s, []signature.Secret{{Value: secret}}, r, at).Verdict == signature.Valid
		}
		same := strings.NewReplacer()
		row := &triedRow{oracle: v.Kind + " vector, " + v.Source, accepted: map[string]bool{
			caseSigned: accepted(v.Secret, same, v.At), caseChanged: accepted(v.Secret, strings.NewReplacer(v.Change[0], v.Change[1]), v.At),
			caseSecret: accepted("0"+v.Secret[1:], same, v.At) || accepted("another", same, v.At),
		}}
		if s.Old > 0 {
			row.accepted[caseOld] = accepted(v.Secret, same, v.At.Add(s.Old+time.Second))
		}
		rows[s] = row
	}
}

// vectorScheme returns the row without a library for a sender and a header line.
func vectorScheme(sender, line string) *signature.Scheme {
	for i := range signature.Senders {
		for n := range signature.Senders[i].Schemes {
			if s := &signature.Senders[i].Schemes[n]; signature.Senders[i].Name == sender && s.Header == line && s.Oracle == "" {
				return s
			}
		}
	}
	return nil
}
