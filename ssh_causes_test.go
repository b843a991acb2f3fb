package relay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// causesFile has the list of all that ends an SSH connection.
const causesFile = "link/cause.go"

// closeBelow are the only functions that close the TCP connection of an SSH connection: that of package link, after a
// cause was recorded, and that of a connection that was not admitted.
var closeBelow = []string{"sender.Close", "acceptedConn.Close"}

// fileName matches the files in the comments of the causes.
var fileName = regexp.MustCompile(`[a-z_]+(/[a-z_]+)+\.go`)

// TestCausesOfSSHConnections: each cause in link/cause.go is used, and its comment names exactly the files, and each
// function, that end a connection by it. No code ends a connection by a cause that is not in the list, or without a
// cause. The test does not see a Close of a variable that holds the TCP connection below.
func TestCausesOfSSHConnections(t *testing.T) {
	t.Parallel()
	comments := commentsOfCauses(t)
	if len(comments) < 20 {
		t.Fatalf("only %d causes were found", len(comments))
	}
	used := map[string]bool{}
	for _, file := range slices.Concat(programFiles(t, "link"), programFiles(t, "sshgate"), programFiles(t, "client")) {
		if file == causesFile {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for _, cause := range causesIn(f.Body, comments, strings.HasPrefix(file, "link/")) {
				used[cause+" in "+file] = true
				comment := comments[cause]
				if !regexp.MustCompile(`\b`+f.Name.Name+`\b`).MatchString(comment) || !strings.Contains(comment, file) {
					t.Errorf("%s: %s uses the cause %s, whose comment does not name the function and its file", file, nameOf(f), cause)
				}
			}
			if bad := unlistedClose(f.Body); bad != "" && !slices.Contains(closeBelow, nameOf(f)) {
				t.Errorf("%s: %s ends a connection %s", file, nameOf(f), bad)
			}
		}
	}
	for cause, comment := range comments {
		files := fileName.FindAllString(comment, -1)
		if len(files) == 0 {
			t.Errorf("nothing ends a connection by the cause %s", cause)
		}
		for _, file := range files {
			if !used[cause+" in "+file] {
				t.Errorf("the comment of the cause %s names %s, where nothing ends a connection by it", cause, file)
			}
		}
	}
}

// commentsOfCauses returns the comment of each cause, by the name of its constant.
func commentsOfCauses(t *testing.T) map[string]string {
	parsed, err := parser.ParseFile(token.NewFileSet(), causesFile, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			comments[spec.Names[0].Name] = spec.Doc.Text()
		}
		return true
	})
	return comments
}

// causesIn returns the causes that a function names, except those that it compares with a cause. inLink means that the
// function belongs to package link.
func causesIn(body ast.Node, causes map[string]string, inLink bool) (named []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		var name *ast.Ident
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return false
		case *ast.Ident:
			name = n
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); !inLink && ok && of.Name == "link" {
				name = n.Sel
			}
		}
		if _, ok := n.(*ast.Ident); ok && !inLink || name == nil {
			return true
		}
		if _, ok := causes[name.Name]; ok {
			named = append(named, name.Name)
		}
		return true
	})
	return named
}

// unlistedClose says how a function ends a connection without a cause of the list; "" = it does not.
func unlistedClose(body ast.Node) (how string) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch of, _ := f.X.(*ast.SelectorExpr); {
		case f.Sel.Name != "Close" && f.Sel.Name != "CloseSent":
		case len(call.Args) == 0 && of != nil && of.Sel.Name == "Conn":
			how = "below its socket"
		case len(call.Args) > 0:
			if _, literal := call.Args[0].(*ast.BasicLit); literal {
				how = "by a cause of its own"
			}
		}
		return true
	})
	return how
}
