package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// testPackages may be imported by the tests of every package, but not by other code.
var testPackages = []string{"relay/relaytest", "relay/store/pgtest", "relay/store/plantest", "relay/store/powertest", "relay/store/schematest", "relay/store/storetest"}

// allowedImports maps each package to the packages of the module that its program files may import. An
// unlisted package fails the test.
var allowedImports = map[string][]string{
	"relay":                   {},
	"relay/budget":            {"relay"},
	"relay/cookie":            {"relay"},
	"relay/turns":             {},
	"relay/waits":             {},
	"relay/sockets":           {},
	"relay/grant":             {"relay", "relay/record"},
	"relay/wire":              {"relay"},
	"relay/signature":         {},
	"relay/compose":           {"relay", "relay/wire", "relay/signature", "relay/record", "relay/record/body"},
	"relay/outgoing":          {"relay", "relay/compose", "relay/record"},
	"relay/handshake":         {"relay/signature", "relay/wire"},
	"relay/record":            {"relay", "relay/wire", "relay/signature", "relay/handshake", "relay/record/body", "relay/record/mask"},
	"relay/record/body":       {"relay/wire"},
	"relay/record/mask":       {"relay/record/body"},
	"relay/server":            {"relay", "relay/wire", "relay/record", "relay/admission", "relay/sockets", "relay/waits"},
	"relay/link":              {"relay", "relay/budget", "relay/sockets", "relay/waits"},
	"relay/server/certs":      {"relay"},
	"relay/mcp":               {"relay", "relay/record", "relay/record/body", "relay/record/mask", "relay/signature", "relay/cli"},
	"relay/cli":               {"relay", "relay/compose", "relay/wire", "relay/signature", "relay/record", "relay/record/body"},
	"relay/sshgate":           {"relay", "relay/wire", "relay/record", "relay/cli", "relay/admission", "relay/sshgate/shell", "relay/budget", "relay/sockets", "relay/link", "relay/sshgate/node", "relay/sshgate/login", "relay/sshgate/session"},
	"relay/sshgate/login":     {"relay", "relay/cli", "relay/admission", "relay/link", "relay/record", "relay/sockets", "relay/sshgate/shell"},
	"relay/sshgate/node":      {"relay", "relay/budget", "relay/link", "relay/record", "relay/sockets", "relay/waits"},
	"relay/admission":         {},
	"relay/sshgate/session":   {"relay", "relay/budget", "relay/cli", "relay/link", "relay/sshgate/login", "relay/sshgate/shell", "relay/waits"},
	"relay/sshgate/shell":     {"relay", "relay/record", "relay/cli"},
	"relay/delivery":          {"relay", "relay/wire", "relay/record", "relay/handshake", "relay/delivery/changes", "relay/delivery/exchange", "relay/delivery/feed", "relay/delivery/limiter", "relay/delivery/registry", "relay/delivery/spares", "relay/budget"},
	"relay/delivery/exchange": {"relay", "relay/wire", "relay/record", "relay/budget", "relay/waits"},
	"relay/delivery/kept":     {"relay"},
	"relay/delivery/limiter":  {"relay", "relay/waits"},
	"relay/delivery/spares":   {"relay", "relay/waits"},
	"relay/delivery/changes":  {"relay", "relay/record"},
	"relay/delivery/feed":     {"relay", "relay/record", "relay/turns", "relay/delivery/changes"},
	"relay/delivery/registry": {"relay", "relay/waits", "relay/delivery/kept", "relay/delivery/limiter", "relay/delivery/spares"},
	"relay/store":             {"relay", "relay/wire", "relay/record", "relay/record/body", "relay/store/db", "relay/store/people", "relay/store/events", "relay/store/cluster", "relay/store/file", "relay/store/seal", "relay/store/convert", "relay/store/spool", "relay/store/journal", "relay/store/partition", "relay/store/retention", "relay/store/usage"},
	"relay/store/db":          {"relay", "relay/migrations", "relay/store/file"},
	"relay/store/people":      {"relay", "relay/record", "relay/signature", "relay/store/db", "relay/store/seal"},
	"relay/store/seal":        {"relay/store/file"},
	"relay/store/events":      {"relay", "relay/record", "relay/record/body", "relay/budget", "relay/turns", "relay/store/db", "relay/store/people"},
	"relay/store/cluster":     {"relay", "relay/store/db", "relay/store/people", "relay/store/events", "relay/store/file"},
	"relay/store/convert":     {"relay", "relay/store/db", "relay/store/events", "relay/store/file"},
	"relay/store/file":        {},
	"relay/store/spool":       {"relay", "relay/store/file"},
	"relay/store/partition":   {"relay", "relay/store/db", "relay/store/events"},
	"relay/store/journal":     {"relay", "relay/record", "relay/store/db", "relay/store/people", "relay/store/events", "relay/store/cluster", "relay/store/spool"},
	"relay/store/usage":       {"relay", "relay/store/db", "relay/store/people", "relay/store/events", "relay/store/cluster"},
	"relay/store/retention":   {"relay", "relay/store/db", "relay/store/people", "relay/store/events", "relay/store/cluster", "relay/store/spool", "relay/store/partition", "relay/store/usage"},
	"relay/store/plantest":    {"relay/store/db", "relay/store/events"},
	"relay/store/storetest":   {"relay", "relay/relaytest", "relay/store", "relay/store/seal"},
	"relay/store/pgtest":      {"relay/relaytest"},
	"relay/store/schematest":  {"relay/store/db", "relay/store/partition", "relay/store/pgtest"},
	"relay/store/powertest":   {},
	"relay/relaytest":         {},
	"relay/bench":             {},
	"relay/migrations":        {},
	"relay/api":               {"relay", "relay/compose", "relay/outgoing", "relay/wire", "relay/signature", "relay/record", "relay/record/body", "relay/budget", "relay/cookie", "relay/sockets", "relay/grant", "relay/cli", "relay/mcp"},
	"relay/dashboard":         {"relay/wire", "relay/dashboard/page", "relay/dashboard/alias", "relay/dashboard/event", "relay/dashboard/people"},
	"relay/dashboard/page":    {"relay", "relay/compose", "relay/record", "relay/budget", "relay/cookie", "relay/sockets", "relay/grant"},
	"relay/dashboard/alias":   {"relay", "relay/handshake", "relay/record", "relay/signature", "relay/record/body", "relay/dashboard/page", "relay/dashboard/body"},
	"relay/dashboard/event":   {"relay", "relay/budget", "relay/compose", "relay/outgoing", "relay/wire", "relay/record", "relay/signature", "relay/record/body", "relay/dashboard/page", "relay/dashboard/alias", "relay/dashboard/body", "relay/grant"},
	"relay/dashboard/people":  {"relay", "relay/record", "relay/cookie", "relay/dashboard/page", "relay/grant"},
	"relay/dashboard/body":    {"relay", "relay/record", "relay/record/body"},
	"relay/dashboard/assets":  {},
	"relay/client":            {"relay", "relay/wire", "relay/record", "relay/cli", "relay/sockets", "relay/link"},
	"relay/manual":            {"relay"},
	"relay/cmd/relay":         {"relay", "relay/record", "relay/cli", "relay/client", "relay/manual", "relay/mcp"},
	"relay/cmd/relayd":        nil, // may import all packages except test packages
}

// forbiddenDeps are packages that a binary must not link, with the reason.
var forbiddenDeps = map[string]map[string]string{
	"relay/cmd/relay": {
		"github.com/lib/pq":         "the client never talks to a database",
		"github.com/jmoiron/sqlx":   "the client never talks to a database",
		"modernc.org/sqlite":        "the client never talks to a database",
		"github.com/a-h/templ":      "the client renders no pages",
		"github.com/gliderlabs/ssh": "the client is no SSH server",
	},
}

type listed struct {
	ImportPath, Doc string
	Imports, Deps   []string
}

// listOnce runs the go command once for all tests.
var listOnce = sync.OnceValues(func() (pkgs []listed, err error) {
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Doc,Imports,Deps", "./...").Output()
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

func list(t *testing.T) []listed {
	t.Helper()
	pkgs, err := listOnce()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return pkgs
}

func TestStarImports(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		allowed, known := allowedImports[p.ImportPath]
		if !known {
			t.Errorf("%s is not in the import map of arch_test.go: give it a place there", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if (imp == "relay" || strings.HasPrefix(imp, "relay/")) && allowed != nil && !slices.Contains(allowed, imp) {
				t.Errorf("%s imports %s, which its line in allowedImports does not name", p.ImportPath, imp)
			}
			if allowed == nil && slices.Contains(testPackages, imp) {
				t.Errorf("%s imports %s: only tests do", p.ImportPath, imp)
			}
		}
	}
}

// rootImports are the only packages that the root package may import. The root package holds types, their
// text forms and their errors; code that accepts, stores, schedules or limits requests belongs in other
// packages.
var rootImports = []string{
	"cmp", "context", "database/sql/driver", "encoding/binary", "encoding/hex", "errors", "fmt", "math", "net/netip", "net/url",
	"net", // needed for the type Conn, which is a net.Conn
	"runtime", "runtime/debug", "slices", "strconv", "strings", "sync", "time",
}

func TestStarImportsOfRoot(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); !slices.Contains(rootImports, path) {
				t.Errorf("%s imports %s: the root package holds types only", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: the root package holds types only", fset.Position(n.Pos()))
			}
			return true
		})
	}
}

func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment: say its one duty", p.ImportPath)
		}
	}
}

func TestForbiddenDependencies(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		for forbidden, why := range forbiddenDeps[p.ImportPath] {
			for _, dep := range p.Deps {
				if dep == forbidden || strings.HasPrefix(dep, forbidden+"/") {
					t.Errorf("%s links %s: %s", p.ImportPath, dep, why)
				}
			}
		}
	}
}

// TestPromises: each test and each mutant that docs/promises.md names exists. A mutant is a deliberate
// mistake in the code, see tools/mutants; the row that names it must also name a test that fails with it.
func TestPromises(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	mutants := listOfMutants(t)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if len(cells) != 4 {
			t.Errorf("docs/promises.md: a row has %d cells: %s", len(cells), line)
			continue
		}
		tests := testNames.FindAllString(cells[1]+cells[2], -1)
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
			pattern := mutants[m[1]]
			switch {
			case pattern == nil:
				t.Errorf("docs/promises.md names the mutant %s, and there is none in tools/mutants/list.txt", m[1])
			case !slices.ContainsFunc(tests, pattern.MatchString):
				t.Errorf("docs/promises.md: the mutant %s has to fail %s, and its row names no such test", m[1], pattern)
			}
		}
	}
	declared := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testDeclarations.FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range testNames.FindAllString(string(page), -1) {
		if !declared[name] {
			t.Errorf("docs/promises.md names %s, and there is no such test", name)
		}
	}
}

var testNames = regexp.MustCompile(`\b(?:Test|Fuzz)\w+`)

// TestEveryBoundHasBothSides: each bound in the tables of docs/limits.md has a row in docs/promises.md,
// section Bounds, and each row of this section is for such a bound. The row names a test at the bound and a
// test beyond it.
func TestEveryBoundHasBothSides(t *testing.T) {
	t.Parallel()
	limits, err := os.ReadFile("docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	promises, err := os.ReadFile("docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(promises), "\n## Bounds\n")
	section, _, _ = strings.Cut(section, "\n## ")
	held := map[string]bool{}
	for _, cells := range rowsOf(section) {
		held[cells[0]] = testNames.MatchString(cells[1]) && testNames.MatchString(cells[2])
	}
	bounds := rowsOf(string(limits))
	if len(bounds) < 20 {
		t.Errorf("docs/limits.md has %d bounds in tables", len(bounds))
	}
	for _, cells := range bounds {
		if !held[cells[0]] {
			t.Errorf("docs/promises.md, section Bounds: no row names tests of both sides of %s", cells[0])
		}
		delete(held, cells[0])
	}
	for name := range held {
		t.Errorf("docs/promises.md, section Bounds: docs/limits.md has no bound %s", name)
	}
}

// rowsOf returns the cells of the rows of the tables of a page, without their headings.
func rowsOf(page string) (rows [][]string) {
	for table := range strings.SplitSeq(page, "\n\n") {
		if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) > 2 && strings.HasPrefix(lines[1], "|-") {
			for _, line := range lines[2:] {
				cells := strings.Split(strings.Trim(line, "|"), "|")
				for i := range cells {
					cells[i] = strings.TrimSpace(cells[i])
				}
				rows = append(rows, cells)
			}
		}
	}
	return rows
}

// listOfMutants returns, for each mutant, the pattern of the names of the tests that must fail with it.
func listOfMutants(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	patterns := map[string]*regexp.Regexp{}
	for _, m := range readMutants(t) {
		_, tests, _ := strings.Cut(m["test"], " ")
		pattern, err := regexp.Compile(tests)
		if err != nil {
			t.Errorf("mutant %s: %v", m["id"], err)
		}
		patterns[m["id"]] = pattern
	}
	return patterns
}

// readMutants reads the entries of the list of mutants.
func readMutants(t *testing.T) (list []map[string]string) {
	t.Helper()
	text, err := os.ReadFile("tools/mutants/list.txt")
	if err != nil {
		t.Fatal(err)
	}
	for entry := range strings.SplitSeq(string(text), "\n\n") {
		m := map[string]string{}
		for line := range strings.Lines(entry) {
			if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && !strings.HasPrefix(line, "#") {
				m[name] = strings.ReplaceAll(value, `\n`, "\n")
			}
		}
		if len(m) > 0 {
			list = append(list, m)
		}
	}
	return list
}

// TestMutantsAreCurrent: the text that a mutant changes is in its file exactly once, and each test that the
// mutant names is in its package.
func TestMutantsAreCurrent(t *testing.T) {
	t.Parallel()
	list := readMutants(t)
	if len(list) < 150 {
		t.Fatalf("the list of mutants has %d entries", len(list))
	}
	for _, m := range list {
		text, err := os.ReadFile(m["file"])
		if n := strings.Count(string(text), m["old"]); err != nil || m["old"] == "" || n != 1 {
			t.Errorf("tools/mutants/list.txt: %s: its text is %d times in %s, and has to be there once (%v); try it with make mutants RUN='^%[1]s$'", m["id"], n, m["file"], err)
		}
		folder, tests, _ := strings.Cut(m["test"], " ")
		declared := testsOf(t, folder)
		for _, name := range regexp.MustCompile(`\^((?:Test|Fuzz)\w+)\$`).FindAllStringSubmatch(tests, -1) {
			if !declared[name[1]] {
				t.Errorf("tools/mutants/list.txt: %s names %s, and %s has no such test", m["id"], name[1], folder)
			}
		}
	}
}

// testsOf lists the tests of a folder.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testDeclarations.FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
	}
	return declared
}

var testDeclarations = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// Each Go, txtar and JSON file that docs/design.md names by its path exists.
func TestPromisesOfTheDesign(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`([a-z_]+/[\\w./]+\\.(?:go|txtar|json))`").FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("docs/design.md names a file that is not there: %v", err)
		}
	}
}
