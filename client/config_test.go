package client

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"relay/cli"
)

var update = flag.Bool("update", false, "write the golden files of this test anew")

// TestConfigFiles compares the meaning of each file of testdata/config, or the error that a user sees,
// with golden.txt.
func TestConfigFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	var out strings.Builder
	for _, file := range files {
		name := filepath.Base(file)
		c, err := ReadConfig(file, name)
		if e, ok := err.(*cli.Error); ok {
			fmt.Fprintf(&out, "%s\n", e.Text)
			if e.Hint != "" {
				fmt.Fprintf(&out, "    hint: %s\n", e.Hint)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v is no *cli.Error", name, err)
			continue
		}
		fmt.Fprintf(&out, "%s: server %q\n", name, c.Server)
		for _, f := range c.Aliases {
			fmt.Fprintf(&out, "    %s %s %q\n", f.Alias, f.Target.URL, f.Target.HostHeader)
		}
	}
	golden := "testdata/config/golden.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestConfigNamesTheKey: a value of the wrong type is an error that names the key and its position, even
// after a byte order mark, which editors on Windows write. Such a key is not reported as unknown.
func TestConfigNamesTheKey(t *testing.T) {
	const begin, signing = "version: 1\naliases:\n  shop: { port: 3000, ", "signing: { stripe: { secretEnv: "
	for _, c := range []struct{ text, place, key string }{
		{"version: '1'\n", "1:10", "version"},
		{"version: 1.0\n", "1:10", "version"},
		{"version: [1]\n", "1:10", "version"},
		{"version: 1\nserver: 2222\n", "2:9", "server"},
		{"version: 1\nserver: true\n", "2:9", "server"},
		{"version: 1\nserver: { host: a }\n", "2:9", "server"},
		{"version: 1\naliases:\n  shop: { port: '3000' }\n", "3:17", "port"},
		{"version: 1\naliases:\n  shop: { port: 3_000 }\n", "3:17", "port"},
		{"version: 1\naliases:\n  shop: { port: 0x10 }\n", "3:17", "port"},
		{"version: 1\naliases:\n  shop: { port: 99999999999999999999 }\n", "3:17", "port"},
		{"version: 1\naliases:\n  shop: { target: 3000 }\n", "3:19", "target"},
		{"version: 1\naliases:\n  shop: { target: [http://127.0.0.1] }\n", "3:19", "target"},
		{begin + "hostHeader: off }\n", "3:35", ""}, // "off" is a string in YAML 1.2
		{begin + "hostHeader: false }\n", "3:35", "hostHeader"},
		{begin + "hostHeader: 1 }\n", "3:35", "hostHeader"},
		{begin + signing + "7 } } }\n", "3:55", "secretEnv"},
		{begin + signing + "[A, B] } } }\n", "3:55", "secretEnv"},
	} {
		for _, mark := range []string{"", "\ufeff"} {
			file := filepath.Join(t.TempDir(), ConfigName)
			if err := os.WriteFile(file, []byte(mark+c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadConfig(file, ConfigName)
			got := ""
			if err != nil {
				got = err.Error()
			}
			want := ConfigName + ":" + c.place + ": " + c.key + ": expected "
			if c.key != "" && !strings.HasPrefix(got, want) || strings.Contains(got, "unknown key") {
				t.Errorf("%q: %q, want %q…", mark+c.text, got, want)
			}
		}
	}
}

func TestConfigIsFoundInTheNearestParent(t *testing.T) {
	top := t.TempDir()
	deep := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(filepath.Join(deep, ConfigName), 0o755); err != nil { // a folder of that name is not a configuration
		t.Fatal(err)
	}
	above := FindConfig(filepath.Dir(top)) // "" unless this machine has such a file there
	if found := FindConfig(deep); found != above {
		t.Errorf("found %q, want %q", found, above)
	}
	for _, dir := range []string{top, filepath.Join(top, "a")} {
		want := filepath.Join(dir, ConfigName)
		if err := os.WriteFile(want, []byte("version: 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if found := FindConfig(deep); found != want {
			t.Errorf("found %q, want %q", found, want)
		}
	}
}

func TestMissingConfigFile(t *testing.T) {
	if _, err := ReadConfig("/nonexistent.yaml", "x"); exitOfError(err) != cli.ExitFailure {
		t.Error(err)
	}
}

func FuzzConfig(f *testing.F) {
	files, _ := filepath.Glob("testdata/config/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfig(text)
		if err == nil && c == nil {
			t.Error("neither a configuration nor an error")
		}
		if err != nil && exitOfError(err) != cli.ExitFailure {
			t.Errorf("%v, exit %d", err, exitOfError(err))
		}
	})
}
