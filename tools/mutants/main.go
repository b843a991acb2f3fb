// Command mutants checks that the tests can fail. It changes one line of the program at a time, according to
// a list, runs the tests that must notice the change, and prints each change that no test noticed. The files
// of the work tree stay unchanged, because the compiler reads the changed line through -overlay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// patience is the time limit for the tests of one mutant. A test that hangs has noticed the change.
const patience = 5 * time.Minute

func main() {
	root := flag.String("root", "..", "folder of the repository")
	list := flag.String("list", "mutants/list.txt", "list of mutants")
	run := flag.String("run", "", "only mutants whose id or package match this regular expression")
	pass := flag.Bool("pass", false, "do not run the tests without a mutant: they are known to pass")
	flag.Parse()
	survivors, err := try(*root, *list, *run, *pass)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// try runs the mutants of a list whose id or package matches the pattern run, two at a time. It prints a line
// for each, and returns the number of mutants that were not killed. If pass is set, it does not check that the
// tests pass without a mutant.
func try(root, list, run string, pass bool) (survivors int, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return 0, err
	}
	mutants, err := parse(string(text))
	if err != nil {
		return 0, err
	}
	which, err := regexp.Compile(run)
	if err != nil {
		return 0, err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !which.MatchString(m.id) && !which.MatchString(m.pkg) })
	passing := map[string]bool{}
	if !pass {
		if passing, err = unchanged(root, mutants); err != nil {
			return 0, err
		}
	}
	counts := map[verdict]int{}
	var mu sync.Mutex
	err = each(mutants, func(m mutant) error {
		begun, v := time.Now(), broken
		if pass || passing[m.pkg+" "+m.tests] { // a mutant proves nothing if the tests fail without it
			var err error
			if v, err = m.try(root); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		counts[v]++
		fmt.Printf("%-9s %-6s %s: %s (%d s)\n", v, m.id, m.file, m.breaks, int(time.Since(begun).Seconds()))
		return nil
	})
	if err != nil {
		return 0, err
	}
	fmt.Printf("%d killed, %d survived, %d stale, %d broken\n", counts[killed], counts[survived], counts[stale], counts[broken])
	return counts[survived] + counts[stale] + counts[broken], nil
}

// unchanged runs the tests without any mutant, and returns which of them pass, by package and pattern. It
// runs all patterns of a package at once. If that fails, it runs the patterns one after another.
func unchanged(root string, mutants []mutant) (passing map[string]bool, err error) {
	var packages []mutant
	for _, m := range mutants {
		i := slices.IndexFunc(packages, func(p mutant) bool { return p.pkg == m.pkg })
		switch {
		case i < 0:
			packages = append(packages, m)
		case !slices.Contains(strings.Split(packages[i].tests, "|"), m.tests):
			packages[i].tests += "|" + m.tests
		}
	}
	var mu sync.Mutex
	passing = map[string]bool{}
	err = each(packages, func(p mutant) error {
		all, err := p.test(root, "")
		if err != nil {
			return err
		}
		for _, m := range mutants {
			key := m.pkg + " " + m.tests
			mu.Lock()
			_, known := passing[key]
			mu.Unlock()
			if m.pkg != p.pkg || known {
				continue
			}
			v := all
			if v != survived {
				if v, err = m.test(root, ""); err != nil {
					return err
				}
			}
			mu.Lock()
			passing[key] = v == survived
			mu.Unlock()
		}
		return nil
	})
	return passing, err
}

// each calls f for each mutant, two at a time, because half of a run is linking, and in the other half the
// tests mostly wait.
func each(of []mutant, f func(mutant) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	rest := make(chan mutant)
	for range 2 {
		wg.Go(func() {
			for m := range rest {
				if err := f(m); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, m := range of {
		rest <- m
	}
	close(rest)
	wg.Wait()
	return failed
}

// verdict is the result of a mutant.
type verdict string

const (
	killed   verdict = "killed"   // a test failed
	survived verdict = "SURVIVED" // all tests passed
	stale    verdict = "STALE"    // the line is not in the file exactly once: update the list
	broken   verdict = "BROKEN"   // the mutant does not build, there are no tests, they fail without the mutant, or the time was too short
)

// mutant is one entry of the list.
type mutant struct {
	id, breaks string
	file       string // within the repository
	old, by    string // old occurs in file exactly once
	pkg, tests string // tests is a pattern for go test -run
}

// parse reads a list: entries of "name: value" lines, with empty lines between them. Lines that begin
// with # are comments.
func parse(text string) (list []mutant, err error) {
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(text+"\n", "\n\n") {
		values := map[string]string{}
		for line := range strings.Lines(entry) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, value, ok := strings.Cut(line, ":")
			if _, twice := values[name]; !ok || twice {
				return nil, fmt.Errorf("%q is no line of an entry", line)
			}
			values[name] = strings.TrimPrefix(value, " ")
		}
		if len(values) == 0 {
			continue
		}
		m := mutant{id: values["id"], breaks: values["breaks"], file: values["file"], old: lines(values["old"]), by: lines(values["new"])}
		m.pkg, m.tests, _ = strings.Cut(values["test"], " ")
		_, replaced := values["new"]
		switch {
		case len(values) != 6 || !replaced || m.id == "" || m.breaks == "" || m.file == "" || m.old == "" || m.pkg == "" || m.tests == "":
			return nil, fmt.Errorf("entry %q: expected id, breaks, file, old, new, and test: PACKAGE PATTERN", m.id)
		case seen[m.id]:
			return nil, fmt.Errorf("two entries are %s", m.id)
		case m.old == m.by:
			return nil, fmt.Errorf("entry %s changes nothing", m.id)
		}
		if _, err := regexp.Compile(m.tests); err != nil {
			return nil, fmt.Errorf("entry %s: %w", m.id, err)
		}
		seen[m.id] = true
		list = append(list, m)
	}
	return list, nil
}

// lines replaces each \n in a value by a line end.
func lines(value string) string { return strings.ReplaceAll(value, `\n`, "\n") }

// try runs the tests with the mutant.
func (m *mutant) try(root string) (verdict, error) {
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		return broken, err
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) || err == nil && strings.Count(string(text), m.old) != 1 {
		return stale, nil
	}
	if err != nil {
		return broken, err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return broken, err
	}
	defer os.RemoveAll(dir)
	changed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.by, 1)), 0o600); err != nil {
		return broken, err
	}
	table, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return broken, err
	}
	if err := os.WriteFile(overlay, table, 0o600); err != nil {
		return broken, err
	}
	return m.test(root, overlay)
}

// conformance is the package whose tests drive the built programs. It is a module of its own.
const conformance = "./conformance"

// test runs the tests with an overlay file; "" = none.
func (m *mutant) test(root, overlay string) (verdict, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, "go", "test", "-vet=off", "-ldflags=-w", "-count=1", "-timeout", patience.String(), "-run", m.tests, m.pkg)
	run.Dir = root
	if m.pkg == conformance || strings.HasPrefix(m.pkg, "./cmd/") { // these tests also run the built programs
		programs, err := os.MkdirTemp("", "programs")
		if err != nil {
			return broken, err
		}
		defer os.RemoveAll(programs)
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay="+overlay, "-o", programs+"/", "./cmd/relayd", "./cmd/relay")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintln(os.Stderr, string(out))
			return broken, nil
		}
		run.Env = append(os.Environ(), "RELAY_TEST_PROGRAMS="+programs)
	}
	switch {
	case m.pkg == conformance: // the module has a folder of its own; the programs that its tests run are built with the overlay
		run.Args[len(run.Args)-1], run.Dir = ".", filepath.Join(root, m.pkg)
	case overlay != "":
		run.Args = slices.Insert(run.Args, 2, "-overlay", overlay)
	}
	out, err := run.CombinedOutput()
	if ctx.Err() != nil { // go test ends earlier by its own timeout, unless the machine is too busy
		fmt.Fprintf(os.Stderr, "%s: no verdict within %v\n", m.id, patience+time.Minute)
		return broken, nil
	}
	_, failed := err.(*exec.ExitError)
	return judge(string(out), failed, err)
}

// judge reads the result from the output of go test.
func judge(out string, failed bool, err error) (verdict, error) {
	switch {
	case err != nil && !failed:
		return broken, err
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"), strings.Contains(out, "[no tests to run]"), strings.Contains(out, "[no test files]"):
		fmt.Fprintln(os.Stderr, out)
		return broken, nil
	case failed:
		return killed, nil
	}
	return survived, nil
}
