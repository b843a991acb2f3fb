package relay_test

import (
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"relay/relaytest"
)

func TestMain(m *testing.M) { os.Exit(relaytest.Main(m)) }

// pages holds the text of the Markdown files of the repository by their path.
var pages = sync.OnceValues(func() (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[path] = string(text)
		}
		return nil
	})
	return out, err
})

func readPages(t *testing.T) map[string]string {
	t.Helper()
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d pages", len(all))
	}
	return all
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors returns the names of the headings of a page, in GitHub's form.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		out[strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// TestLinksOfPages: every link between pages leads to an existing file and heading.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	all, links := readPages(t), 0
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, target)
				continue
			}
			if anchor != "" && !anchors(all[to])[anchor] {
				t.Errorf("%s links to %s, which has no such heading", path, target)
			}
		}
	}
	if links < 50 {
		t.Errorf("found only %d links", links)
	}
}

// documented returns the words of the command lines of a program in the code of a page, both in
// blocks of shell commands and in inline code.
func documented(text, program string) (lines [][]string) {
	var code []string
	for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
		if m[1] == "sh" {
			code = append(code, strings.Split(strings.ReplaceAll(m[2], "\\\n", " "), "\n")...)
		}
	}
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		code = append(code, m[1])
	}
	call := regexp.MustCompile(`(?:^|[(;&|] *|sudo (?:-u \S+ )?)(?:bin/)?` + program + ` ([a-z][^|;&><#)]*)`)
	for _, line := range code {
		for _, m := range call.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
			lines = append(lines, strings.Fields(m[1]))
		}
	}
	return lines
}

var commandWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

// Every command that the pages name exists, and accepts the flags that the pages use with it.
func TestCommandsOfPages(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"relayd", "relay"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			bin, help, found := relaytest.Program(t, program), map[string]string{}, 0
			for path, text := range readPages(t) {
				if strings.HasPrefix(path, "docs/adr/") || path == "CHANGELOG.md" {
					continue // these pages also describe earlier versions
				}
				for _, words := range documented(text, program) {
					found++
					checkCommand(t, path, bin, words, help)
				}
			}
			if found < 20 {
				t.Errorf("found only %d commands of %s", found, program)
			}
		})
	}
}

// checkCommand compares the words of a documented command with the help text of the program. The map help
// keeps the help texts that were read.
func checkCommand(t *testing.T, page, bin string, words []string, help map[string]string) {
	t.Helper()
	var name []string
	for _, w := range words {
		if !commandWord.MatchString(w) || len(name) == 2 {
			break
		}
		name = append(name, w)
	}
	var text string
	for ; len(name) > 0; name = name[:len(name)-1] { // a word after the command may be its argument
		key := strings.Join(name, " ")
		if _, asked := help[key]; !asked {
			out, err := exec.Command(bin, append(name[:len(name):len(name)], "--help")...).CombinedOutput()
			if help[key] = string(out); err != nil || !strings.Contains(help[key], filepath.Base(bin)+" "+key) {
				help[key] = ""
			}
		}
		if text = help[key]; text != "" {
			break
		}
	}
	if text == "" {
		t.Errorf("%s: no such command: %s %s", page, filepath.Base(bin), strings.Join(words, " "))
		return
	}
	for _, w := range words {
		flag, _, _ := strings.Cut(strings.Trim(w, "[]"), "=")
		if strings.HasPrefix(flag, "--") && !regexp.MustCompile(`(?m)(^|[ ,\[])`+regexp.QuoteMeta(flag)+`\b`).MatchString(text) {
			t.Errorf("%s: %s %s has no flag %s", page, filepath.Base(bin), strings.Join(name, " "), flag)
		}
	}
}

// Every setting of relayd that a page, a file in deploy, compose.yaml or the Dockerfile names is in
// docs/config.md, which is generated from the program.
func TestSettingsOfPages(t *testing.T) {
	t.Parallel()
	setting := regexp.MustCompile(`\bRELAY_[A-Z][A-Z_]*[A-Z]\b`)
	all := readPages(t)
	known := map[string]bool{
		"RELAY_SERVER": true, "RELAY_TOKEN": true, "RELAY_URL": true, // settings of the client
	}
	for _, name := range setting.FindAllString(all["docs/config.md"], -1) {
		known[name] = true
	}
	texts := map[string]string{}
	for path, text := range all {
		if strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "docs/adr/") || path == "README.md" {
			texts[path] = text
		}
	}
	files, err := filepath.Glob("deploy/*/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no files in deploy", err)
	}
	for _, path := range append(files, "compose.yaml", "Dockerfile") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	for path, text := range texts {
		for _, name := range setting.FindAllString(text, -1) {
			if !known[name] && !strings.HasPrefix(name, "RELAY_TEST_") {
				t.Errorf("%s names %s, which is no setting", path, name)
			}
		}
	}
}

// compose.yaml has the nodes that HAProxy is configured for, and these nodes trust the address of
// HAProxy.
func TestComposeMatchesHAProxy(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Profiles    []string
			Environment map[string]string
			Networks    map[string]map[string]string
			Volumes     []string
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("deploy/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	address, data := compose.Services["haproxy"].Networks["default"]["ipv4_address"], map[string]bool{}
	for _, name := range []string{"relayd", "relayd-2", "relayd-3"} {
		s := compose.Services[name]
		if s.Environment["RELAY_NODE_NAME"] != name || s.Environment["RELAY_TRUSTED_PROXIES"] != address+"/32" || s.Environment["RELAY_DATABASE_URL_FILE"] == "" {
			t.Errorf("the environment of %s is %v", name, s.Environment)
		}
		// If Docker forwards connections through a process of its own, all SSH clients have the address of the
		// gateway, so a penalty for that address would lock all of them out.
		if own, err := netip.ParsePrefix(s.Environment["RELAY_SSH_PENALTY_EXEMPT"]); err != nil || !own.Contains(netip.MustParseAddr(address)) {
			t.Errorf("%s gives penalties to the network of %s: %v", name, address, err)
		}
		if want := name != "relayd"; slices.Equal(s.Profiles, []string{"nodes"}) != want {
			t.Errorf("%s has the profiles %v", name, s.Profiles)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, declared := compose.Volumes[volume]; !declared || data[volume] {
				t.Errorf("the volume %s of %s is shared or not declared", volume, name)
			}
			data[volume] = true
		}
		for _, line := range []string{" " + name + ":8080 check\n", " " + name + ":2222 check port 8080\n"} {
			if strings.Count(string(config), line) != 1 {
				t.Errorf("haproxy.cfg has no server%s", line)
			}
		}
	}
	if len(data) != 3 {
		t.Errorf("the volumes of the nodes are %v", data)
	}
}
