// Package manual writes the manual pages of a program from its cobra commands. The packages for
// operating systems include these pages.
package manual

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay"
)

// Manual holds the parts of the manual pages that the commands of the program do not have. Names, texts and
// flags come from the commands.
type Manual struct {
	// Section is the section of the manual: 1 for user programs, 8 for programs of operators.
	Section int
	// End is roff that ends the page of the program itself: exit status, files,
	// environment.
	End string
}

// Write writes the page of a command and one page for each of its subcommands into dir. It creates dir if
// necessary.
func (m Manual) Write(c *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, fmt.Sprintf("%s.%d", pageName(c), m.Section))
	if err := os.WriteFile(file, m.page(c), 0o644); err != nil {
		return fmt.Errorf("cannot write the manual: %w", err)
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := m.Write(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page returns a page in the macros of man(7). The page has no date, because builds must be reproducible.
func (m Manual) page(c *cobra.Command) []byte {
	var b bytes.Buffer
	name := pageName(c)
	fmt.Fprintf(&b, ".TH \"%s\" \"%d\" \"\" \"relay %s\" \"Relay\"\n", roff(strings.ToUpper(name)), m.Section, roff(relay.ThisBuild().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(cmp.Or(c.Long, c.Short)))
	if c.HasAvailableSubCommands() {
		var commands [][2]string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				commands = append(commands, [2]string{strings.TrimPrefix(sub.UseLine(), c.CommandPath()+" "), sub.Short})
			}
		}
		b.WriteString(List("COMMANDS", commands...))
	}
	b.WriteString(options("OPTIONS", c.NonInheritedFlags()) + options("GLOBAL OPTIONS", c.InheritedFlags()))
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n")
		for line := range strings.SplitSeq(strings.TrimSuffix(c.Example, "\n"), "\n") {
			b.WriteString(roff(line) + "\n")
		}
		b.WriteString(".fi\n")
	}
	if !c.HasParent() {
		b.WriteString(m.End)
	} else {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (%d)\n", roff(pageName(c.Parent())), m.Section)
	}
	return b.Bytes()
}

// List returns a section that lists terms with their meanings, as roff.
func List(title string, items ...[2]string) string {
	text := ".SH " + title + "\n"
	for _, item := range items {
		text += fmt.Sprintf(".TP\n.B %s\n%s\n", roff(item[0]), roff(item[1]))
	}
	return text
}

func options(title string, flags *pflag.FlagSet) string {
	if !flags.HasAvailableFlags() {
		return ""
	}
	var list [][2]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			text += " (default " + f.DefValue + ")"
		}
		list = append(list, [2]string{name, text})
	})
	return List(title, list...)
}

// paragraphs returns text as roff. Indented lines keep their line breaks.
func paragraphs(text string) string {
	var b strings.Builder
	list := false // whether the previous line was indented
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, " "); indented != list {
			list = indented
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[list])
		}
		if line == "" {
			line = ".PP"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	if list {
		b.WriteString(".fi\n")
	}
	return b.String()
}

// roff escapes text for roff.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
