package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/cli"
	"relay/record"
)

// sources are the places from which settings are read, in order of precedence.
type sources struct {
	flags  map[string]string // the flags on the command line
	getenv func(string) string
	file   string // --config; "" = none
	system string // file of the packaged service; "" = none

	// credentials are the paths where systemd keeps the secrets of the packaged service; %s stands for the
	// name of a setting. systemd passes them only to the service, so a command of root reads them from these
	// paths.
	credentials []string
}

// systemConfig is the file of the packaged service. A command without --config uses this file if no other
// source names the store and the user may read the file.
const systemConfig = "/etc/relayd/relayd.yaml"

// systemCredentials are the paths of the credentials of the packaged service.
var systemCredentials = []string{"/run/credentials/relayd.service/%s", "/etc/credstore/relayd.%s"}

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

// ofService reports whether the settings come from the file of the packaged service.
func (src sources) ofService() bool {
	return src.system != "" && filepath.Clean(src.configFile()) == src.system
}

// load builds the Config: flag, then environment, then file, then default. It also returns the settings with
// their origins. It reports all mistakes together; the error is a *cli.Error for wrong usage.
func load(src sources) (Config, []*setting, error) {
	var c Config
	list := c.settings()
	var entries map[string]fileEntry
	var faults error
	if file := src.configFile(); file != "" {
		entries, faults = readConfigFile(file, list)
	}
	for _, s := range list {
		text, origin, err := s.lookup(src, entries)
		if err == nil {
			s.origin = origin
			if err = s.set(text); err != nil {
				err = fmt.Errorf("%s: %w", s.location(), err)
			}
		}
		faults = errors.Join(faults, err)
	}
	if faults == nil {
		faults = c.check(list, src.getenv)
	}
	if faults != nil {
		return Config{}, nil, cli.Usage("%v", faults)
	}
	return c, list, nil
}

// lookup returns the text of a setting from the first source that has it, and the name of the source.
func (s *setting) lookup(src sources, entries map[string]fileEntry) (text, origin string, err error) {
	if text, ok := src.flags[s.name]; ok {
		return text, "--" + s.name, nil
	}
	// An empty variable counts as unset, because compose files and unit files pass empty variables.
	text = src.getenv(s.env())
	path, origin := "", s.env()+"_FILE"
	if s.secret || s.file {
		path = src.getenv(origin)
	}
	switch dir := src.getenv("CREDENTIALS_DIRECTORY"); {
	case text != "" && path != "":
		return "", "", fmt.Errorf("%s and %s are both set; keep one", s.env(), origin)
	case text != "":
		return text, s.env(), nil
	case path == "" && s.secret && dir != "": // secrets that systemd passes in this folder: see systemd.exec(5)
		path, origin = filepath.Join(dir, s.name), "credential "+s.name
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			path = ""
		}
	case path == "" && s.secret && src.ofService():
		for _, pattern := range slices.Backward(src.credentials) {
			file := fmt.Sprintf(pattern, s.name)
			if f, err := os.Open(file); err == nil {
				_ = f.Close()
				path, origin = file, file
			}
		}
	}
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", origin, withoutPath(path, err))
		}
		return string(record.DecodeText(content)), origin, nil
	}
	if e, ok := entries[s.name]; ok {
		return e.text, e.origin, nil
	}
	return s.def, "default", nil
}

// withoutPath returns err, the error of opening a file. It leaves the argument path out of the text of err
// unless that argument clearly is a path: somebody may have given the secret itself by mistake.
func withoutPath(path string, err error) error {
	var fault *fs.PathError
	if errors.As(err, &fault) && (looksSecret(path) || !filepath.IsAbs(path)) {
		return fmt.Errorf("%w; expected the absolute path of a file that holds the value", fault.Err)
	}
	return err
}

const minDatabaseConns = 6

// check checks rules between settings, and fills in the values that follow from other settings.
func (c *Config) check(list []*setting, getenv func(string) string) (faults error) {
	c.DatabaseDirectURL = cmp.Or(c.DatabaseDirectURL, c.DatabaseURL)
	c.DataDir = cmp.Or(c.DataDir, defaultDataDir(getenv))
	if dir, err := filepath.Abs(c.DataDir); err == nil && c.DataDir != "" {
		c.DataDir = dir
	}
	c.drainDelayGiven = named(list, "drain-delay").origin != "default"
	refuse := func(broken bool, setting, text string) {
		if broken {
			faults = errors.Join(faults, fmt.Errorf("%s: %s", named(list, setting).location(), text))
		}
	}
	files, acme := c.TLS == "files", c.TLS == "acme"
	_, _, server := net.SplitHostPort(c.ACMEDNSServer)
	_, command := exec.LookPath(c.ACMEDNSCommand)
	ca, err := url.Parse(c.ACMECA)
	refuse(c.DataDir == "", "data-dir", "there is no home folder to put it in; pass --data-dir")
	refuse(c.SSHAddr == "", "ssh-addr", "tunnels come in by ssh: it cannot be off")
	refuse(c.HTTPAddr == "" && c.HTTPSAddr == "", "http-addr", "it can be off only with --https-addr")
	refuse(c.PingInterval <= 0, "ping-interval", "it cannot be off or 0: a vanished peer would never be noticed")
	refuse(c.PingTimeout <= 0, "ping-timeout", "it cannot be off or 0: every peer would count as vanished, or none")
	refuse(c.DatabaseMaxConns < minDatabaseConns, "database-max-conns", fmt.Sprintf("a node needs %d connections at least: for its heartbeat, for notifications, two that write and two for other work", minDatabaseConns))
	refuse(c.DrainDelay < 0, "drain-delay", "it cannot be off; 0s closes the listeners at once")
	refuse(files && c.TLSCert == "", "tls-cert", "tls files needs the certificate chain: pass --tls-cert FILE")
	refuse(files && c.TLSKey == "", "tls-key", "tls files needs the private key: pass --tls-key FILE")
	refuse(c.TLS != off && c.HTTPSAddr == "", "tls", fmt.Sprintf("tls %s needs a listener: pass --https-addr such as :443", c.TLS))
	refuse(c.TLS == off && c.HTTPSAddr != "", "https-addr", "a TLS listener needs certificates: pass --tls files or --tls acme")
	refuse(acme && c.BaseURL == "" && c.ACMECA == "", "base-url", // the private CA of --acme-ca may issue certificates for localhost
		"tls acme needs the name to get a certificate for: pass --base-url such as https://relay.example.com")
	refuse(acme && c.ACMEDNS == "rfc2136" && server != nil, "acme-dns-server", "acme-dns rfc2136 needs the server to update, such as 192.0.2.53:53")
	refuse(acme && c.ACMEDNS == "command" && command != nil, "acme-dns-command", fmt.Sprintf("acme-dns command needs a program: %v", command))
	refuse(c.ACMECA != "" && (err != nil || ca.Scheme != "https" || ca.Host == ""), "acme-ca",
		fmt.Sprintf("%q is not the https URL of a directory, such as https://acme-v02.api.letsencrypt.org/directory", c.ACMECA))
	return faults
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

// storeSettings are the settings that choose the store of a command. The other settings are flags of
// every command too, so that one environment and one file work for all of them, but only the help of
// serve shows them.
var storeSettings = map[string]bool{"data-dir": true, "database-url": true}

// withSettings makes cmd load the settings and pass them to the function do. If all is set, the help of cmd
// shows every setting.
func (c *program) withSettings(cmd *cobra.Command, all bool, do func(ctx context.Context, cfg Config, list []*setting, args []string) error) *cobra.Command {
	load := c.settingFlags(cmd, all)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, list, err := load()
		if err != nil {
			return err
		}
		return do(cmd.Context(), cfg, list, args)
	}
	return cmd
}

// defaultConfig returns the default of every setting.
func defaultConfig() (c Config) {
	for _, s := range c.settings() {
		_ = s.set(s.def)
	}
	return c
}

// settingFlags adds every setting to a command as a flag; if all is set, the help of the command shows them.
// The returned function loads the settings when the command runs.
func (c *program) settingFlags(cmd *cobra.Command, all bool) func() (Config, []*setting, error) {
	set := c.storeFlags
	if all || set == nil {
		set = newFlagSet(all)
	}
	cmd.Flags().AddFlagSet(set.flags)
	if all {
		cmd.Flags().SortFlags = false
		cli.GroupFlags(cmd)
	} else {
		c.storeFlags = set
		cmd.Long = strings.TrimSpace(cmp.Or(cmd.Long, sentence(cmd.Short)) + "\n\n" + otherSettings)
	}
	return func() (Config, []*setting, error) {
		return load(sources{flags: set.given, getenv: c.getenv, file: *set.file, system: systemConfig, credentials: systemCredentials})
	}
}

// flagSet has a flag for each setting. Commands share one, because twenty commands have the flags, and only one
// command runs.
type flagSet struct {
	flags *pflag.FlagSet
	given map[string]string // text of each flag on the command line
	file  *string           // value of --config
}

// newFlagSet makes the flags in the order of the settings. Unless all is set, only the settings of the store are
// shown in the help.
func newFlagSet(all bool) *flagSet {
	set := &flagSet{flags: &pflag.FlagSet{}, given: map[string]string{}}
	set.flags.SortFlags = false
	set.file = set.flags.String("config", "", "YAML `FILE` of settings, flag names as keys (RELAY_CONFIG)")
	var defaults Config
	for _, s := range defaults.settings() {
		f := set.flags.VarPF(&rawFlag{s, set.given}, s.name, "", s.help)
		f.Annotations = map[string][]string{cli.FlagGroup: {s.group}}
		f.Hidden = !all && !storeSettings[s.name]
	}
	return set
}

// otherSettings ends the help of commands that accept all settings and do not list them.
const otherSettings = "All other settings of the server apply too, by flag, environment variable or file: see relayd serve --help."

// sentence turns the short description of a command into a sentence.
func sentence(short string) string {
	return strings.ToUpper(short[:1]) + short[1:] + "."
}

// rawFlag stores the text of a flag. load parses the text, so a bad value has the same message from every
// source.
type rawFlag struct {
	setting *setting
	given   map[string]string
}

var _ pflag.Value = (*rawFlag)(nil)

// Set stores the text of the flag.
func (f *rawFlag) Set(text string) error { f.given[f.setting.name] = text; return nil }

// String returns the default, for the help.
func (f *rawFlag) String() string { return f.setting.def }

// Type returns a word for the value, for the help.
func (f *rawFlag) Type() string { return cmp.Or(kinds[f.setting.kind].word, "text") }

// configCommand prints the effective settings with their origins, or the reference of all settings.
func (c *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "print each effective setting with its origin, secrets masked", Args: cli.Takes("", 0, 0),
	}
	load := c.settingFlags(cmd, false)
	asJSON := jsonFlag(cmd)
	markdown := cmd.Flags().Bool("markdown", false, "print the reference of all settings instead")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *markdown {
			return writeReference(c.stdout)
		}
		cfg, list, err := load()
		if err != nil {
			return err
		}
		return printSettings(c.stdout, *asJSON, effective(cfg, list))
	}
	return cmd
}

func printSettings(w io.Writer, asJSON bool, rows []settingRow) error {
	return printRows(w, asJSON, "SETTING\tVALUE\tORIGIN", rows, func(r settingRow) []string {
		return []string{r.Name, r.Value, r.Origin}
	})
}

type settingRow struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// effective lists the values that the server would use, including values that follow from other settings.
func effective(cfg Config, list []*setting) []settingRow {
	site := cfg.site()
	host, _ := os.Hostname()
	derived := map[string]string{
		"base-url": site.Base.String(), "ssh-public-addr": site.SSHAddr, "node-name": cmp.Or(host, "relayd"),
		"peer-addr": cmp.Or(cfg.peerAddr(), off),
	}
	return mapSlice(list, func(s *setting) settingRow {
		value := s.String()
		if s.origin == "default" {
			value = cmp.Or(s.def, value) // the text of the default in the tag of the field
		}
		lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' }) // initial-admin-keys may have several lines
		return settingRow{Name: s.name, Value: cmp.Or(strings.Join(lines, "; "), derived[s.name]), Origin: s.origin}
	})
}

// referenceHead is the beginning of docs/config.md, with ' in place of grave accents.
const referenceHead = `# Settings of relayd

Set up relayd with flags, environment variables or a YAML file. Every setting is below, with its default. To see the values in force
and where each comes from:

'''sh
relayd config
'''

- A flag wins over the environment variable, the variable over the file, and the file over the default. An empty variable counts as not set.
- The file is that of '--config' ('RELAY_CONFIG'). Without it, relayd reads '/etc/relayd/relayd.yaml' of the packaged service, if it may
  read that file and no other setting names the store.
- Where 'NAME_FILE' is listed, it is the path of a file that holds the value; set only one of the two. If neither is set, relayd reads a
  secret from the systemd credential of its name ('LoadCredential=database-url:…').
- An unknown key or a bad value is an error that names its place and the values that are allowed.

'make generate' writes this page.

| kind | is written |
|---|---|
| size | whole number with 'KiB MiB GiB TiB' (powers of 1024), 'KB MB GB TB' (powers of 1000), or bytes |
| duration | '90s', '15m', '12h', '30d', '1h30m' |
| rate | '60/min', '5/s', '1000/h' |
| switch | 'on' or 'off' |
| address | '127.0.0.1:8080', ':8080' (all interfaces) |
| list | separated by commas; in the file a YAML list too |

Sizes, durations, counts and rates that limit something take 'off' for no limit.
`

// writeReference writes docs/config.md.
func writeReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(referenceHead, "'", "`"))
	var defaults Config
	group := ""
	notes := "" // notes of the settings of the group; they come below its table
	for _, s := range defaults.settings() {
		if s.group != group {
			group = s.group
			b.WriteString(notes + "\n## " + group + "\n\n| flag and file key | environment | default | meaning |\n|---|---|---|---|\n")
			notes = ""
		}
		def, env := "`"+s.def+"`", "`"+s.env()+"`"
		if s.def == "" {
			def = "empty"
		}
		if s.secret || s.file {
			env += ", `" + s.env() + "_FILE`"
		}
		if s.note != "" {
			notes += cmp.Or(notes, "\n") + fmt.Sprintf("- `--%s`: %s\n", s.name, s.note)
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", s.name, env, def, s.help)
	}
	b.WriteString(notes)
	_, err := strings.NewReplacer("<alias>", "`<alias>`", "<domain>", "`<domain>`", "<HTTP port>", "`<HTTP port>`").WriteString(w, b.String())
	return err
}
