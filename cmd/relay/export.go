package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"relay/record"
)

func (p *program) export() *cobra.Command {
	c := &cobra.Command{Use: "export ID", Short: exportShort, Long: exportLong, Example: exportExample, Args: oneArg("event id")}
	format := c.Flags().String("format", "curl", flagFormat)
	asJSON := c.Flags().Bool("json", false, flagExportJSON)
	c.PreRunE = func(*cobra.Command, []string) error {
		known := record.ExportFormats
		if slices.Contains(known, *format) {
			return nil
		}
		err := usage("--format is %s, not %q", strings.Join(known, ", "), *format)
		if near := record.Nearest(*format, known); near != "" {
			return err.WithHint("did you mean --format %s", near)
		}
		return err
	}
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(record.ExportFormats, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := p.api(c.Context())
		if err != nil {
			return err
		}
		defer api.Close()
		answer, name, err := api.Export(c.Context(), args[0], *format)
		if err != nil {
			return withHint(c.Name(), err)
		}
		text := exportText(*format, answer)
		w := p.printer()
		if *asJSON || p.output == outputJSON {
			return w.object(map[string]string{
				"format": *format, "id": args[0], "name": name, "text": text,
			})
		}
		return w.source(text)
	}
	return c
}

// exportText returns an export as it is written to a file, the same for both
// connections.
func exportText(format string, answer []byte) string {
	if format != "har" && format != "json" || !json.Valid(answer) {
		return string(answer)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, []byte(record.SafeJSON(answer)), "", "  "); err != nil {
		return string(answer)
	}
	return text.String() + "\n"
}

// source writes text for a program. Exports contain only printable text and tabs;
// anything else is escaped, because then it is not an export.
func (w *printer) source(s string) error {
	var b strings.Builder
	for l := range strings.Lines(s) {
		for i, part := range strings.Split(strings.TrimRight(l, "\n"), "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(record.SafeText(part))
		}
		b.WriteByte('\n')
	}
	_, err := w.out.Write([]byte(b.String()))
	return err
}
