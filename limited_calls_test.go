package relay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// limitedCalls are the calls that create a credential or a share, or send an event, each with its limits. One
// of these limits has to count the call.
var limitedCalls = map[string][]string{
	"CreateShare": {"Create"}, "CreateToken": {"Create"}, "CreateInvite": {"Create"}, "CreateLoginLink": {"Create"}, "AddKey": {"Create"},
	"RenewToken": {"Create"}, "ApproveEnrolment": {"Create"}, "UseLoginLink": {"Create"}, "UseInvite": {"Create"},
	"Replay": {"Replay", "ShareReplay"}, "Send": {"Replay"}, "Release": {"Replay"},
}

// countedElsewhere maps a function that makes one of the limitedCalls to the function that counts the call.
var countedElsewhere = map[string]string{
	"api replayAs":           "runCounted",
	"api addReplayRoutes":    "runCounted",
	"api run":                "prepare",
	"dashboard replayShared": "ReplayShared",
	"dashboard sendNow":      "countSend",
	"dashboard useInvite":    "openSession",
	"dashboard useLogin":     "openSession",
}

// TestLimitedCallsAreCounted: each function that makes one of the limitedCalls counts the call by a limit, or
// countedElsewhere names the function that counts it.
func TestLimitedCallsAreCounted(t *testing.T) {
	t.Parallel()
	counts := map[string][]string{} // limits that each function calls
	type made struct{ where, fn, call string }
	var calls []made
	for _, front := range []string{"api", "dashboard", "sshgate", "grant", "mcp", "outgoing", "cli"} {
		err := filepath.WalkDir(front, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Body == nil {
					continue
				}
				ast.Inspect(f.Body, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					chosen, ok := call.Fun.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					name, of := chosen.Sel.Name, receiver(chosen.X)
					switch {
					case of == "Limits", of == "o" && name == "Create":
						counts[f.Name.Name] = append(counts[f.Name.Name], name)
					case limitedCalls[name] != nil && slices.Contains([]string{"Accounts", "accounts", "Enrolments", "Deliver"}, of):
						calls = append(calls, made{set.Position(call.Pos()).String(), front + " " + f.Name.Name, name})
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(calls) < 15 {
		t.Errorf("only %d calls were found", len(calls))
	}
	known := map[string]bool{}
	for _, c := range calls {
		_, by, _ := strings.Cut(c.fn, " ")
		if elsewhere, ok := countedElsewhere[c.fn]; ok {
			by, known[c.fn] = elsewhere, true
		}
		if !slices.ContainsFunc(counts[by], func(limit string) bool { return slices.Contains(limitedCalls[c.call], limit) }) {
			t.Errorf("%s: %s calls %s, and %s counts no %s", c.where, c.fn, c.call, by, strings.Join(limitedCalls[c.call], " or "))
		}
	}
	for fn := range countedElsewhere {
		if !known[fn] {
			t.Errorf("countedElsewhere has %s, which makes no such call", fn)
		}
	}
}

// receiver returns the last name of an expression, such as Limits for o.Limits.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}
