package relay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sshLibrary is the SSH library. Only package link uses its connections and channels.
const sshLibrary = "golang.org/x/crypto/ssh"

// sshConnections are the names in the library that give access to a connection or a channel. Only package link
// may use them, because some calls on them never return, or return only when the connection ends.
var sshConnections = []string{
	"Channel", "Client", "Conn", "Dial", "DiscardRequests", "NewChannel", "NewClient", "NewClientConn", "NewServerConn", "Request",
	"ServerConn", "Session",
}

// namesConnections maps the files outside of package link that have to use some of sshConnections to the names
// that they use.
var namesConnections = map[string][]string{
	"client/doctor.go":            {"NewClientConn"}, // a handshake cannot hang, because the socket has a deadline
	"cmd/relayd/doctor_public.go": {"NewClientConn"},
}

// connectionCalls are the methods of the library that wait for the peer.
var connectionCalls = []string{"OpenChannel", "SendRequest", "Accept", "Reject", "Reply", "Read", "Write", "CloseWrite", "Wait"}

// TestNoWaitGroupSpansTheLibrary: no program file of package link uses sync.WaitGroup, because a call of the
// SSH library may never return.
func TestNoWaitGroupSpansTheLibrary(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("link/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") && strings.Contains(string(text), "sync.WaitGroup") {
			t.Errorf("%s has a WaitGroup", path)
		}
	}
}

// TestOnlyLinkUsesConnections: no other program file uses a connection or a channel of the SSH library. The
// files in namesConnections name such a type, but call none of its methods that may wait.
func TestOnlyLinkUsesConnections(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"link", "conformance", "bench", "tools", "testdata", ".git"}, path):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := importedAs(file, sshLibrary)
		if name == "" {
			return nil
		}
		for _, use := range connectionsUsed(file, name) {
			if !slices.Contains(namesConnections[filepath.ToSlash(path)], use.Sel.Name) {
				t.Errorf("%s uses %s.%s: only package link has connections and channels", fset.Position(use.Pos()), name, use.Sel.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range namesConnections {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err) // the list names a file that does not exist any more
			continue
		}
		for _, call := range callsOnParameters(file, importedAs(file, sshLibrary)) {
			t.Errorf("%s calls %s of the SSH library", fset.Position(call.Pos()), call.Sel.Name)
		}
	}
}

// importedAs returns the name that a file uses for a package; "" if the file does not import it.
func importedAs(file *ast.File, path string) string {
	for _, imp := range file.Imports {
		if p, _ := strconv.Unquote(imp.Path.Value); p == path {
			if imp.Name != nil {
				return imp.Name.Name
			}
			return path[strings.LastIndexByte(path, '/')+1:]
		}
	}
	return ""
}

// connectionsUsed returns the places where a file names a connection or a channel of the library.
func connectionsUsed(file *ast.File, library string) (uses []*ast.SelectorExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		if use, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := use.X.(*ast.Ident); ok && pkg.Name == library && slices.Contains(sshConnections, use.Sel.Name) {
				uses = append(uses, use)
			}
		}
		return true
	})
	return uses
}

// callsOnParameters returns the calls of connectionCalls on parameters that have a type of the library.
func callsOnParameters(file *ast.File, library string) (calls []*ast.SelectorExpr) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		held := map[string]bool{}
		for _, field := range f.Type.Params.List {
			ast.Inspect(field.Type, func(n ast.Node) bool {
				if use, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := use.X.(*ast.Ident); ok && pkg.Name == library && slices.Contains(sshConnections, use.Sel.Name) {
						for _, name := range field.Names {
							held[name.Name] = true
						}
					}
				}
				return true
			})
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok {
				if on, ok := call.X.(*ast.Ident); ok && held[on.Name] && slices.Contains(connectionCalls, call.Sel.Name) {
					calls = append(calls, call)
				}
			}
			return true
		})
	}
	return calls
}
