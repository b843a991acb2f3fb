package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/client"
	"relay/record"
)

// usage returns an error about the command line.
func usage(format string, args ...any) *client.Error {
	return client.Errorf(client.ExitUsage, format, args...)
}

// unknownCommand runs commands that only have subcommands: it prints help, or fails for
// an unknown subcommand.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	err := usage("unknown command %q of %s", args[0], c.CommandPath())
	if near := record.Nearest(args[0], names); near != "" {
		return err.WithHint("did you mean %s %s", c.CommandPath(), near)
	}
	return err.WithHint("%s --help lists the commands", c.CommandPath())
}

// valueWords describes the values of a flag type; "" leaves the text of the flag
// library.
func valueWords(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int":
		return "a whole number"
	case "bool":
		return "true or false"
	}
	return ""
}

// flagError turns an error of the flag library into a usage error.
func flagError(c *cobra.Command, cause error) error {
	err := usage("%s", strings.ReplaceAll(cause.Error(), "\n", "; "))
	var wrong *pflag.InvalidValueError
	if errors.As(cause, &wrong) && valueWords(wrong.GetFlag()) != "" {
		err = usage("--%s takes %s, not %q", wrong.GetFlag().Name, valueWords(wrong.GetFlag()), wrong.GetValue())
	}
	if typed, ok := strings.CutPrefix(cause.Error(), "unknown flag: --"); ok {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := record.Nearest(typed, names); near != "" {
			return err.WithHint("did you mean --%s", near)
		}
	}
	var short *pflag.NotExistError
	if errors.As(cause, &short) && short.GetSpecifiedShortnames() != "" {
		var meant string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if meant == "" && strings.HasPrefix(f.Name, short.GetSpecifiedName()) {
				meant = f.Name
			}
		})
		if meant != "" {
			return err.WithHint("did you mean --%s", meant)
		}
	}
	return err.WithHint("%s --help lists the flags", c.CommandPath())
}

// oneArg requires exactly one argument, which what describes.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] != "" {
			return nil
		}
		return usage("%s takes one %s", c.CommandPath(), what).WithHint("%s", c.UseLine())
	}
}

// twoArgs requires exactly two arguments, which what describes.
func twoArgs(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 2 && args[0] != "" && args[1] != "" {
			return nil
		}
		return usage("%s takes two %s", c.CommandPath(), what).WithHint("%s", c.UseLine())
	}
}

// optionalArg allows one argument, which what describes.
func optionalArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && args[0] != "" {
			return nil
		}
		return usage("%s takes at most one %s", c.CommandPath(), what).WithHint("%s", c.UseLine())
	}
}

// help shows the help of a command; it fails for an unknown one.
func help(c *cobra.Command, args []string) error {
	found, rest, err := c.Root().Find(args)
	if err != nil || found == nil {
		found, rest = c.Root(), args
	}
	if len(rest) > 0 {
		return unknownCommand(found, rest)
	}
	found.InitDefaultHelpFlag()
	found.InitDefaultVersionFlag()
	return found.Help()
}

// noArgs refuses arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("%s takes no arguments, not %q", c.CommandPath(), args[0]).WithHint("%s", c.UseLine())
}
