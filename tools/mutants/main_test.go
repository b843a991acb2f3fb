package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParse: a list is parsed correctly. An entry with missing or duplicate fields is an error.
func TestParse(t *testing.T) {
	const entry = "id: a1\nbreaks: a sum: 1 + 1\nfile: sum.go\nold: a + b\nnew: a - b\ntest: ./sum ^TestSum$"
	list, err := parse("# comment\n\n" + entry + "\n\n" + strings.NewReplacer("a1", "a2", "new: a - b", "new: ").Replace(entry) + "\n")
	if err != nil || len(list) != 2 || list[0] != (mutant{"a1", "a sum: 1 + 1", "sum.go", "a + b", "a - b", "./sum", "^TestSum$"}) || list[1].by != "" {
		t.Errorf("%+v, %v", list, err)
	}
	for name, text := range map[string]string{
		"twice":         entry + "\n\n" + entry,
		"a line twice":  entry + "\nid: a2",
		"no line":       entry + "\nwhatever",
		"no tests":      strings.Replace(entry, " ^TestSum$", "", 1),
		"nothing new":   strings.Replace(entry, "new: a - b\n", "", 1),
		"changes none":  strings.Replace(entry, "new: a - b", "new: a + b", 1),
		"wrong pattern": strings.Replace(entry, "^TestSum$", "(", 1),
		"another name":  entry + "\nwhy: no",
	} {
		if list, err := parse(text); err == nil {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// TestList: the committed list can be parsed.
func TestList(t *testing.T) {
	text, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err := parse(string(text))
	if err != nil || len(list) < 20 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
}

// TestVerdicts: try returns the number of mutants of a small module that were not killed.
func TestVerdicts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module sums\n\ngo 1.26\n",
		"sum.go":      "package sums\n\nfunc sum(a, b int) int { return a + b }\n\nfunc unseen() int { return 1 }\n\nvar _ = unseen\n",
		"sum_test.go": "package sums\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestFails(t *testing.T) { t.Fatal() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(id, old, by, tests string) string {
		return "id: " + id + "\nbreaks: x\nfile: sum.go\nold: " + old + "\nnew: " + by + "\ntest: . " + tests + "\n\n"
	}
	for name, c := range map[string]struct {
		entry string
		left  int
	}{
		"killed":            {entry("k", "a + b", "a - b", "^TestSum$"), 0},
		"survived":          {entry("s", "return 1", "return 2", "^TestSum$"), 1},
		"stale":             {entry("t", "a * b", "a - b", "^TestSum$"), 1},
		"in two places":     {entry("u", "unseen", "seen", "^TestSum$"), 1},
		"does not build":    {entry("b", "a + b", "a +", "^TestSum$"), 1},
		"fails without it":  {entry("f", "a + b", "a - b", "^TestFails$"), 1},
		"there is no test":  {entry("n", "a + b", "a - b", "^TestNone$"), 1},
		"two, one survives": {entry("k", "a + b", "a - b", "^TestSum$") + entry("s", "return 1", "return 2", "^TestSum$"), 1},
	} {
		list := filepath.Join(dir, "list.txt")
		if err := os.WriteFile(list, []byte(c.entry), 0o600); err != nil {
			t.Fatal(err)
		}
		if left, err := try(dir, list, "", false); err != nil || left != c.left {
			t.Errorf("%s: %d are left, %v", name, left, err)
		}
	}
}
