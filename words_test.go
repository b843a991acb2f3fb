package relay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// source is a Go file that was not generated; path is relative to the module.
type source struct {
	path string
	file *ast.File
}

// sources reads every Go file once for all tests, including the files of the other modules.
var sources = sync.OnceValues(func() (all []source, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_templ.go"):
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		all = append(all, source{path, file})
		return err
	})
	return all, err
})

// metaphors are words from daily life that the code must not use as names of technical things.
var metaphors = []string{
	"house", "room", "door", "office", "cellar", "penman", "bequest", "lament", "usher", "hands", "fight", "crowd", "guest", "zombie", "ghost", "herald", "undertaker",
}

// oldMetaphors are existing names that contain a metaphor. This list may only shrink.
var oldMetaphors = []string{
	"TestChunkFindsRoomLate", "TestCrowdThatEndsAtOnce", "TestManyChangesOfOneAliasLeaveRoomForOthers", "TestNoRoom", "TestQueueRoom", "TestSpoolKeepsRoomForEnds",
	"crowd", "room", "startCrowd", "zombie",
}

// wordStart matches the words inside a name.
var wordStart = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

func TestNoMetaphors(t *testing.T) {
	t.Parallel()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, s := range all {
		for name := range declared(s.file) {
			for _, word := range wordStart.FindAllString(name, -1) {
				if word = strings.ToLower(word); slices.Contains(metaphors, word) || slices.Contains(metaphors, strings.TrimSuffix(word, "s")) {
					if found[name] = true; !slices.Contains(oldMetaphors, name) {
						t.Errorf("%s names something %s: use the plain word for it", s.path, name)
					}
				}
			}
		}
	}
	for _, name := range oldMetaphors {
		if !found[name] {
			t.Errorf("nothing is named %s any more: take it off the list", name)
		}
	}
}

// declared returns the names that a file declares: of packages, types, functions, methods, fields, variables.
func declared(file *ast.File) map[string]bool {
	names := map[string]bool{file.Name.Name: true}
	add := func(ids []*ast.Ident) {
		for _, id := range ids {
			names[id.Name] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Name.Name] = true
		case *ast.TypeSpec:
			names[n.Name.Name] = true
		case *ast.ValueSpec:
			add(n.Names)
		case *ast.Field:
			add(n.Names)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// twoMeanings are names used both for a constant or variable of a package and for a local variable in
// it. This list may only shrink.
var twoMeanings = []string{"signature body"}

// A name has one meaning in a package: a local variable must not have the name of a constant or variable
// of its package.
func TestWordsOfLocals(t *testing.T) {
	t.Parallel()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	global, found := map[string]bool{}, map[string]bool{} // the keys are a folder, a space and a name
	each := func(visit func(folder string, d ast.Decl)) {
		for _, s := range all {
			if strings.HasSuffix(s.path, "_test.go") {
				continue
			}
			for _, d := range s.file.Decls {
				visit(filepath.Dir(s.path)+" ", d)
			}
		}
	}
	each(func(folder string, d ast.Decl) {
		if g, ok := d.(*ast.GenDecl); ok && (g.Tok == token.CONST || g.Tok == token.VAR) {
			for _, spec := range g.Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					global[folder+id.Name] = id.Name != "_"
				}
			}
		}
	})
	each(func(folder string, d ast.Decl) {
		if _, ok := d.(*ast.FuncDecl); !ok {
			return
		}
		ast.Inspect(d, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if ok && global[folder+id.Name] && id.Obj != nil && id.Obj.Pos() == id.Pos() && id.Obj.Kind == ast.Var {
				found[folder+id.Name] = true
			}
			return true
		})
	})
	if got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(slices.Values(twoMeanings)); !slices.Equal(got, want) {
		t.Errorf("names with two meanings in a package: got %q, the list has %q; rename the constant, or take it off the list", got, want)
	}
}

// No word is explained twice in docs/glossary.md.
func TestWordsOfTheGlossary(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z][^|]*) \|`).FindAllStringSubmatch(string(page), -1) {
		for word := range strings.SplitSeq(m[1], ", ") {
			if seen[word] && word != "word" {
				t.Errorf("the glossary explains %s twice", word)
			}
			seen[word] = true
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d words were found", len(seen))
	}
}
