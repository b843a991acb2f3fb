package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sources is where settings may come from, strongest first.
type sources struct {
	flags  map[string]string // given on the command line
	getenv func(string) string
	file   string // --config; "" = none
	system string // file of the packaged service; "" = none
}

// systemConfig is the file of the packaged service. Without --config, it is used by every
// command that nothing tells where the store is, if the person may read it.
const systemConfig = "/etc/relayd/relayd.yaml"

// configFile returns the path of the configuration file, "" = none.
func (src sources) configFile() string {
	if file := cmp.Or(src.file, src.getenv("RELAY_CONFIG")); file != "" {
		return file
	}
	for name := range storeSettings {
		s := setting{name: name}
		if src.flags[name] != "" || src.getenv(s.env()) != "" || src.getenv(s.env()+"_FILE") != "" {
			return ""
		}
	}
	f, err := os.Open(src.system)
	if err != nil {
		return ""
	}
	_ = f.Close()
	return src.system
}

// load builds the Config: flag, then environment, then file, then default. The
// settings come back with their origins. Every mistake is reported, not only the
// first; the error is then a *usageError.
func load(src sources) (Config, []*setting, error) {
	var c Config
	list := c.settings()
	var entries map[string]fileEntry
	var faults []error
	if file := src.configFile(); file != "" {
		var err error
		if entries, err = readConfigFile(file, list); err != nil {
			faults = append(faults, err)
		}
	}
	for _, s := range list {
		if err := s.resolve(src, entries); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		faults = c.check(list, src.getenv)
	}
	if len(faults) > 0 {
		return Config{}, nil, &usageError{err: errors.Join(faults...)}
	}
	return c, list, nil
}

// resolve takes the strongest source that has the setting and parses it.
func (s *setting) resolve(src sources, entries map[string]fileEntry) error {
	text, origin, err := s.lookup(src, entries)
	if err != nil {
		return err
	}
	s.origin = origin
	err = s.value.UnmarshalText([]byte(text))
	if err == nil && !s.zero && zeroLimit(s.value) {
		err = fmt.Errorf("%q would allow nothing; write off for no limit", text)
	}
	if err == nil {
		return nil
	}
	if strings.HasPrefix(origin, "--") || strings.HasPrefix(origin, "RELAY_") {
		return fmt.Errorf("%s: %w", origin, err)
	}
	return fmt.Errorf("%s: %s: %w", origin, s.name, err)
}

// zeroLimit tells whether v is a limit of exactly nothing.
func zeroLimit(v value) bool {
	switch v := v.(type) {
	case *Size:
		return *v == 0
	case *Count:
		return *v == 0
	case *Duration:
		return *v == 0
	}
	return false
}

func (s *setting) lookup(src sources, entries map[string]fileEntry) (text, origin string, err error) {
	if text, ok := src.flags[s.name]; ok {
		return text, "--" + s.name, nil
	}
	// An empty variable counts as not set: compose files and unit files pass those.
	text = src.getenv(s.env())
	if s.secret || s.file {
		path := src.getenv(s.env() + "_FILE")
		switch {
		case path != "" && text != "":
			return "", "", fmt.Errorf("%s and %s_FILE are both set; keep one", s.env(), s.env())
		case path != "":
			content, err := os.ReadFile(path)
			if err != nil {
				return "", "", fmt.Errorf("%s_FILE: %w", s.env(), err)
			}
			return string(content), s.env() + "_FILE", nil
		}
	}
	if text != "" {
		return text, s.env(), nil
	}
	if dir := src.getenv("CREDENTIALS_DIRECTORY"); dir != "" && s.secret { // systemd.exec(5)
		content, err := os.ReadFile(filepath.Join(dir, s.name))
		if err == nil {
			return string(content), "credential " + s.name, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", "", fmt.Errorf("credential %s: %w", s.name, err)
		}
	}
	if e, ok := entries[s.name]; ok {
		return e.text, e.origin, nil
	}
	return s.def, "default", nil
}

const minDatabaseConns = 6

// check looks at settings together and fills what follows from others.
func (c *Config) check(list []*setting, getenv func(string) string) []error {
	if c.DatabaseDirectURL == "" {
		c.DatabaseDirectURL = c.DatabaseURL
	}
	var faults []error
	wrong := func(name, format string, args ...any) {
		for _, s := range list {
			if s.name == name {
				faults = append(faults, fmt.Errorf("%s: %s", s.location(), fmt.Sprintf(format, args...)))
			}
		}
	}
	if c.DataDir == "" {
		c.DataDir = Text(defaultDataDir(getenv))
	}
	if dir, err := filepath.Abs(string(c.DataDir)); err == nil && c.DataDir != "" {
		c.DataDir = Text(dir)
	}
	if c.DataDir == "" {
		wrong("data-dir", "there is no home folder to put it in; pass --data-dir")
	}
	if !c.SSHAddr.On() {
		wrong("ssh-addr", "tunnels come in by ssh: it cannot be off")
	}
	if !c.HTTPAddr.On() && !c.HTTPSAddr.On() {
		wrong("http-addr", "it can be off only with --https-addr")
	}
	if c.PingInterval == unlimited {
		wrong("ping-interval", "it cannot be off: a vanished peer would never be noticed")
	}
	if c.PingTimeout == unlimited {
		wrong("ping-timeout", "it cannot be off: a vanished peer would never be noticed")
	}
	if n := c.DatabaseMaxConns; n < minDatabaseConns {
		wrong("database-max-conns", "a node needs %d connections at least: for its heartbeat, for notifications, two that write and two for other work", minDatabaseConns)
	}
	if c.DrainDelay == unlimited {
		wrong("drain-delay", "it cannot be off; 0s closes the listeners at once")
	}
	for _, s := range list {
		c.drainDelayGiven = c.drainDelayGiven || s.name == "drain-delay" && s.origin != "default"
	}
	c.checkTLS(wrong)
	return faults
}

func (c *Config) checkTLS(wrong func(name, format string, args ...any)) {
	switch {
	case c.TLS == "files" && c.TLSCert == "":
		wrong("tls-cert", "tls files needs the certificate chain: pass --tls-cert FILE")
	case c.TLS == "files" && c.TLSKey == "":
		wrong("tls-key", "tls files needs the private key: pass --tls-key FILE")
	case c.TLS != off && !c.HTTPSAddr.On():
		wrong("tls", "tls %s needs a listener: pass --https-addr such as :443", c.TLS)
	case c.TLS == off && c.HTTPSAddr.On():
		wrong("https-addr", "a TLS listener needs certificates: pass --tls files or --tls acme")
	case c.TLS == "acme" && c.BaseURL == "" && c.ACMECA == "": // a CA of one's own may do localhost
		wrong("base-url", "tls acme needs the name to get a certificate for: pass --base-url such as https://relay.example.com")
	}
	if _, _, err := net.SplitHostPort(string(c.ACMEDNSServer)); c.TLS == "acme" && c.ACMEDNS == "rfc2136" && err != nil {
		wrong("acme-dns-server", "acme-dns rfc2136 needs the server to update, such as 192.0.2.53:53")
	}
	if _, err := exec.LookPath(string(c.ACMEDNSCommand)); c.TLS == "acme" && c.ACMEDNS == "command" && err != nil {
		wrong("acme-dns-command", "acme-dns command needs a program: %v", err)
	}
	if u, err := url.Parse(string(c.ACMECA)); c.ACMECA != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		wrong("acme-ca", "%q is not the https URL of a directory, such as https://acme-v02.api.letsencrypt.org/directory", string(c.ACMECA))
	}
}

// location is how a message names a setting: by its origin where it was given.
func (s *setting) location() string {
	switch {
	case s.origin == "default":
		return "--" + s.name
	case strings.HasPrefix(s.origin, "--"), strings.HasPrefix(s.origin, "RELAY_"):
		return s.origin
	}
	return s.origin + ": " + s.name
}

func defaultDataDir(getenv func(string) string) string {
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "relayd")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", "relayd")
	}
	return ""
}

// storeSettings are those that say which store a command works on, and how to
// reach what it prints; the other settings are flags of every command too, so that
// one environment and one file serve all of them, but only serve's help shows them.
var storeSettings = map[string]bool{"data-dir": true, "database-url": true}

// settingFlags adds every setting to a command as a flag; all shows them in its
// help. The result loads the settings once the command runs.
func (c *cli) settingFlags(cmd *cobra.Command, all bool) func() (Config, []*setting, error) {
	given := map[string]string{}
	flags := cmd.Flags()
	file := flags.String("config", "", "YAML file of settings, flag names as keys (RELAY_CONFIG)")
	var defaults Config
	for _, s := range defaults.settings() {
		flags.Var(&rawFlag{setting: s, given: given}, s.name, s.help+" ("+s.env()+")")
		if !all && !storeSettings[s.name] {
			_ = flags.MarkHidden(s.name)
		}
	}
	return func() (Config, []*setting, error) {
		return load(sources{flags: given, getenv: c.getenv, file: *file, system: systemConfig})
	}
}

// rawFlag keeps what was given; load parses it, so that a bad value reads the same
// from every source.
type rawFlag struct {
	setting *setting
	given   map[string]string
}

var _ pflag.Value = (*rawFlag)(nil)

// Set notes the text of the flag.
func (f *rawFlag) Set(text string) error { f.given[f.setting.name] = text; return nil }

// String is the default, for the help.
func (f *rawFlag) String() string {
	if f.setting == nil {
		return ""
	}
	return f.setting.def
}

// Type is a word for the value, for the help.
func (f *rawFlag) Type() string {
	switch f.setting.value.(type) {
	case *HostPort:
		return "addr"
	case *BaseURL, *DatabaseURL:
		return "url"
	case *Switch:
		return "on|off"
	case *Addr, *Size, *Duration, *Count, *Rate:
		return strings.ToLower(reflect.TypeOf(f.setting.value).Elem().Name())
	}
	return "text"
}
