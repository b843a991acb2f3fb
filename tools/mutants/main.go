// Command mutants checks that the tests can fail. It changes one line of the program at a time,
// according to a list, runs the tests that must notice the change, and prints each change that they
// did not notice. It changes no file of the work tree: the compiler reads the changed line through
// -overlay.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// patience is the time limit for the tests of one mutant. Tests that hang count as having noticed it.
const patience = 5 * time.Minute

func main() {
	root := flag.String("root", "..", "folder of the repository")
	list := flag.String("list", "mutants/list.txt", "list of mutants")
	run := flag.String("run", "", "only mutants whose id or package match this regular expression")
	flag.Parse()
	survivors, err := try(*root, *list, *run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// try runs the mutants of a list that match, prints a line for each, and returns the number of those that
// survived.
func try(root, list, run string) (survivors int, err error) {
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
	counts := map[verdict]int{}
	unchanged := map[string]verdict{} // by package and tests
	for _, m := range mutants {
		if !which.MatchString(m.id) && !which.MatchString(m.pkg) {
			continue
		}
		begun := time.Now()
		key := m.pkg + " " + m.tests
		if _, known := unchanged[key]; !known {
			unchanged[key], err = m.test(root, "")
			if err != nil {
				return 0, err
			}
		}
		v := broken
		if unchanged[key] == survived { // else the tests fail without the mutant, too
			if v, err = m.try(root); err != nil {
				return 0, err
			}
		}
		counts[v]++
		fmt.Printf("%-9s %-6s %s: %s (%d s)\n", v, m.id, m.file, m.breaks, int(time.Since(begun).Seconds()))
	}
	fmt.Printf("%d killed, %d survived, %d stale, %d broken\n", counts[killed], counts[survived], counts[stale], counts[broken])
	return counts[survived] + counts[stale] + counts[broken], nil
}

// verdict is the result of a mutant.
type verdict string

const (
	killed   verdict = "killed"   // a test failed
	survived verdict = "SURVIVED" // all tests passed
	stale    verdict = "STALE"    // the line is not in the file exactly once: change the list along with the code
	broken   verdict = "BROKEN"   // the mutant does not build, or the tests fail without it, or there are none
)

// mutant is one entry of the list.
type mutant struct {
	id, breaks string
	file       string // within the repository
	old, by    string // old stands in file exactly once
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

// test runs the tests with an overlay, "" = none.
func (m *mutant) test(root, overlay string) (verdict, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Minute)
	defer cancel()
	args := []string{"test", "-vet=off", "-count=1", "-timeout", patience.String(), "-run", m.tests}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, m.pkg)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
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
