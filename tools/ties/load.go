package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pkg holds the counts of a package.
type pkg struct {
	path      string
	files     []string // names, sorted
	program   int      // number of files that are not generated
	lines     int      // number of lines in these files
	arrows    map[arrow][]string
	largest   structure
	writers   []string // files that write fields of largest, or of a struct that it embeds
	functions []function

	fset *token.FileSet
	info *types.Info
	own  *types.Package
}

// function is a function that is not generated.
type function struct {
	name, file string
	lines      int
}

// listed is the go command's description of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	DepOnly                 bool
}

// load reads the packages that patterns name, and counts their parts.
func load(patterns []string) (packages []*pkg, err error) {
	if len(patterns) == 0 {
		return nil, errors.New("name packages, such as ../store or ../delivery/...")
	}
	var all []listed
	for _, pattern := range patterns { // one at a time, because each may belong to another module
		dir := strings.TrimSuffix(strings.TrimSuffix(pattern, "..."), "/")
		cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,DepOnly", "."+strings.TrimPrefix(pattern, dir))
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w", pattern, err)
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var l listed
			if err := dec.Decode(&l); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
	}
	exports := map[string]string{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	for _, l := range all {
		if !l.DepOnly && len(l.GoFiles) > 0 {
			p, err := read(l, exports)
			if err != nil {
				return nil, err
			}
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// read parses and checks one package; exports maps each imported package to its compiled form.
func read(l listed, exports map[string]string) (*pkg, error) {
	p := &pkg{
		path: l.ImportPath, fset: token.NewFileSet(), arrows: map[arrow][]string{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}},
	}
	var parsed []*ast.File
	for _, name := range l.GoFiles {
		file, err := parser.ParseFile(p.fset, filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
		p.files = append(p.files, name)
		if !ast.IsGenerated(file) {
			p.program++
			p.lines += p.fset.File(file.Pos()).LineCount() - 1
			p.addFunctions(file, name)
		}
	}
	config := types.Config{Importer: importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	own, err := config.Check(l.ImportPath, p.fset, parsed, p.info)
	if err != nil {
		return nil, err
	}
	p.own = own
	p.addArrows()
	p.largest = p.largestStructure()
	writers := map[string]bool{}
	for _, file := range parsed {
		if p.writes(file, p.largest) {
			writers[p.fileOf(file.Pos())] = true
		}
	}
	p.writers = slices.Sorted(maps.Keys(writers))
	return p, nil
}

func (p *pkg) fileOf(at token.Pos) string { return filepath.Base(p.fset.Position(at).Filename) }

func (p *pkg) addFunctions(file *ast.File, name string) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			lines := p.fset.Position(f.End()).Line - p.fset.Position(f.Pos()).Line + 1
			p.functions = append(p.functions, function{f.Name.Name, name, lines})
		}
	}
}
