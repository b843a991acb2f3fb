package relay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// closedConns are the expressions x in the calls x.Close() by which package link and the SSH server close a
// connection, or its socket.
var closedConns = []string{"c", "s", "c.Sock", "g.conn", "l.conn"}

// closesFor are functions that only do what their caller decides. docs/design.md names the functions that decide
// to close a connection instead.
var closesFor = []string{"Conn.Close", "Conn.CloseSent"}

// TestEndsOfSSHConnections: docs/design.md, "What ends an SSH connection?", names every function that closes a
// connection of the SSH server.
func TestEndsOfSSHConnections(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "**What ends an SSH connection?**")
	section, _, _ = strings.Cut(section, "\n**")
	ends := 0
	for _, file := range slices.Concat(programFiles(t, "link"), programFiles(t, "sshgate")) {
		if strings.HasPrefix(file, "sshgate/node/") || strings.HasPrefix(file, "sshgate/session/") || strings.HasPrefix(file, "sshgate/shell/") {
			continue // node is about connections to other nodes, session and shell about what runs on a connection
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !closesConn(f.Body) || slices.Contains(closesFor, nameOf(f)) {
				continue
			}
			if ends++; !strings.Contains(section, "`"+f.Name.Name+"`") {
				t.Errorf("%s: %s closes an ssh connection, and docs/design.md does not name it", file, nameOf(f))
			}
		}
	}
	if ends < 20 {
		t.Errorf("only %d functions close a connection: closedConns is out of date", ends)
	}
}

// closesConn reports whether a function calls Close of one of closedConns.
func closesConn(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) > 0 {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Close" {
			found = found || slices.Contains(closedConns, dotted(s.X))
		}
		return true
	})
	return found
}

// dotted returns a name such as c.Sock; "" for any other expression.
func dotted(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if of := dotted(e.X); of != "" {
			return of + "." + e.Sel.Name
		}
	}
	return ""
}
