package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// configCommand prints the settings as they are, with origins, or their reference.
func (c *cli) configCommand() *cobra.Command {
	var asJSON, markdown bool
	cmd := &cobra.Command{
		Use: "config", Short: "print each effective setting with its origin, secrets masked", Args: exactly(),
	}
	load := c.settingFlags(cmd, true)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the reference of all settings instead")
	cmd.RunE = func(*cobra.Command, []string) error {
		if markdown {
			return writeReference(c.stdout)
		}
		cfg, list, err := load()
		if err != nil {
			return err
		}
		return printRows(c.stdout, asJSON, []string{"SETTING", "VALUE", "ORIGIN"}, effective(cfg, list), func(r settingRow) []string {
			return []string{r.Name, r.Value, r.Origin}
		})
	}
	return cmd
}

type settingRow struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// effective lists the values that the server would use; those that follow from
// others are shown as they came out.
func effective(cfg Config, list []*setting) []settingRow {
	site := cfg.site(cfg.addresses())
	host, _ := os.Hostname()
	derived := map[string]string{
		"base-url": site.Base.String(), "ssh-public-addr": site.SSHAddr, "node-name": cmp.Or(host, "relayd"),
		"peer-addr": cmp.Or(cfg.PeerAddr.resolve(string(cfg.SSHAddr), cfg.DatabaseURL != ""), off),
	}
	rows := make([]settingRow, len(list))
	for i, s := range list {
		rows[i] = settingRow{Name: s.name, Value: s.value.String(), Origin: s.origin}
		if _, ok := s.value.(*Duration); ok && s.origin == "default" {
			rows[i].Value = s.def // 75s, as everything else that is printed calls it
		}
		if text, ok := derived[s.name]; ok && rows[i].Value == "" {
			rows[i].Value = text
		}
		if s.name == "initial-admin-keys" {
			rows[i].Value = strings.Join(strings.FieldsFunc(rows[i].Value, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
		}
	}
	return rows
}

// writeReference writes docs/config.md.
func writeReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("| flag and file key | environment | default | meaning |\n|---|---|---|---|\n")
	var defaults Config
	for _, s := range defaults.settings() {
		def, env, note := "`"+s.def+"`", "`"+s.env()+"`", ""
		if s.def == "" {
			def = "empty"
		}
		if s.secret || s.file {
			env += ", `" + s.env() + "_FILE`"
		}
		if s.note != "" {
			note = " (" + s.note + ")"
		}
		row := fmt.Sprintf("| `--%s` | %s | %s | %s%s |\n", s.name, env, def, s.help, note)
		b.WriteString(strings.NewReplacer("<alias>", "`<alias>`", "<domain>", "`<domain>`", "<HTTP port>", "`<HTTP port>`").Replace(row))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
