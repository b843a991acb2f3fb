package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
		return load(sources{flags: given, getenv: c.getenv, file: *file})
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
	case *Addr, *HostPort:
		return "addr"
	case *BaseURL, *DatabaseURL:
		return "url"
	case *Size:
		return "size"
	case *Duration:
		return "duration"
	case *Count:
		return "count"
	case *Rate:
		return "rate"
	case *Switch:
		return "on|off"
	default:
		return "text"
	}
}
