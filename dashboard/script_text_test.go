package dashboard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestStringsOfScriptsHaveNoComments: no string of a script contains a space and then two slashes. A script is sent
// without its comments, and such a string would lose its end.
func TestStringsOfScriptsHaveNoComments(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`(?:[^`\\\\]|\\\\.)*`")
	files, err := filepath.Glob("assets/*.js")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if code, _, _ := strings.Cut(line, "\t// "); !strings.HasPrefix(strings.TrimSpace(code), "//") {
				for _, s := range literal.FindAllString(code, -1) {
					if strings.Contains(s, " // ") {
						t.Errorf("%s:%d: %s", file, n+1, s)
					}
				}
			}
		}
	}
}
