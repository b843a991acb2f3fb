package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/crypto/ssh/knownhosts"
)

// asWindows has the encodings in which programs on Windows save a text.
var asWindows = map[string]func(string) string{
	"with a mark": func(s string) string { return "\ufeff" + s },
	"mark, CRLF":  func(s string) string { return "\ufeff" + strings.ReplaceAll(s, "\n", "\r\n") },
	"UTF-16": func(s string) string {
		out := []byte("\xff\xfe")
		for _, u := range utf16.Encode([]rune(strings.ReplaceAll(s, "\n", "\r\n"))) {
			out = append(out, byte(u), byte(u>>8))
		}
		return string(out)
	},
}

// TestFilesWithAByteOrderMark: the mark that editors on Windows write is not part of the first key or
// name of a file.
func TestFilesWithAByteOrderMark(t *testing.T) {
	for name, saved := range asWindows {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, ConfigName)
			keep(t, file, "")
			write := func(path, text string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(saved(text)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(file, "version: 1\nserver: relay.test:2222\n")
			if c, err := ReadConfig(file, ConfigName); err != nil || c.Server != "relay.test:2222" {
				t.Errorf("%s: %+v, %v", ConfigName, c, err)
			}
			if token, err := ReadToken(strings.NewReader(saved("rly_x\nmore\n"))); err != nil || token != "rly_x" {
				t.Errorf("token %q, %v", token, err)
			}
			key := newSigner(t)
			addr := newFakeRelay(t, key).listen()
			dialer, _ := newDialer(t, "shop")
			text, err := os.ReadFile(dialer.Identity)
			if err != nil {
				t.Fatal(err)
			}
			write(dialer.Identity, string(text))
			host, port, _ := strings.Cut(addr, ":")
			keep(t, filepath.Join(dialer.Home, ".ssh", "known_hosts"), "")
			write(filepath.Join(dialer.Home, ".ssh", "config"), "Host shop\n  HostName "+host+"\n  Port "+port+"\n")
			write(filepath.Join(dialer.Home, ".ssh", "known_hosts"), knownhosts.Line([]string{addr}, key.PublicKey())+"\n")
			if err := dialOnce(t, dialer); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dialer.StateDir, "known_hosts")); err == nil {
				t.Error("the host key was not found among the known ones")
			}
		})
	}
}
