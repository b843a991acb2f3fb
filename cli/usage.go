package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/record"
)

// Usage returns an error about the command line.
func Usage(format string, args ...any) *Error {
	return Errorf(ExitUsage, format, args...)
}

// Decimal is the value of a flag for a decimal integer. The integer flags of the library read 03000 as octal:
// 1536.
type Decimal int

// String implements pflag.Value.
func (d *Decimal) String() string { return strconv.Itoa(int(*d)) }

// Type implements pflag.Value.
func (d *Decimal) Type() string { return "int" }

// Set implements pflag.Value.
func (d *Decimal) Set(text string) error {
	n, err := strconv.Atoi(text)
	*d = Decimal(n)
	return err
}

// UnknownCommand is the action of commands that only have subcommands: it prints help, or fails for an
// unknown subcommand.
func UnknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return Usage("unknown command %q of %s", args[0], c.CommandPath()).
		Meant(args[0], names, c.CommandPath()+" ", c.CommandPath()+" --help lists the commands")
}

// FlagError turns an error of the flag library into a usage error.
func FlagError(c *cobra.Command, cause error) error {
	err := Usage("%s", strings.ReplaceAll(cause.Error(), "\n", "; "))
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](cause); ok {
		words := map[string]string{"int": "a whole number", "bool": "true or false"}[wrong.GetFlag().Value.Type()]
		if words != "" {
			err = Usage("--%s takes %s, not %q", wrong.GetFlag().Name, words, wrong.GetValue())
		}
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	meant := ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](cause); ok {
		if name := unknown.GetSpecifiedName(); unknown.GetSpecifiedShortnames() == "" {
			meant = record.Nearest(name, names)
		} else if at := slices.IndexFunc(names, func(long string) bool { return strings.HasPrefix(long, name) }); at >= 0 {
			meant = names[at]
		}
	}
	if meant != "" {
		return err.WithHint("did you mean --%s", meant)
	}
	return err.WithHint("%s --help lists the flags", c.CommandPath())
}

// ThisProgram is the group of the commands about the program itself.
const ThisProgram = "This program"

// AddGroup adds commands to root. The help of root lists them below a heading.
func AddGroup(root *cobra.Command, heading string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: heading, Title: heading + ":"})
	for _, c := range commands {
		c.GroupID = heading
	}
	root.AddCommand(commands...)
}

// FlagGroup is the annotation of a flag with the heading below which GroupFlags lists it.
const FlagGroup = "relay_flag_group"

// helpWidth is the number of columns of the help of grouped flags.
const helpWidth = 100

// GroupFlags lets the help of c list its flags below the headings of their FlagGroup, in the order of
// their definition. Flags without a heading come last.
func GroupFlags(c *cobra.Command) {
	c.SetUsageFunc(func(c *cobra.Command) error {
		const rest = "Flags"
		var headings []string
		groups := map[string]*pflag.FlagSet{}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			heading := rest
			if of := f.Annotations[FlagGroup]; len(of) > 0 {
				heading = of[0]
			}
			if groups[heading] == nil {
				groups[heading] = &pflag.FlagSet{}
				groups[heading].SortFlags = false
				headings = append(headings, heading)
			}
			groups[heading].AddFlag(f)
		})
		slices.SortStableFunc(headings, func(a, b string) int { return cmp.Compare(strings.Count(a, rest), strings.Count(b, rest)) })
		text := "Usage:\n  " + c.UseLine() + "\n\nExamples:\n" + c.Example + "\n"
		for _, heading := range headings {
			text += "\n" + heading + ":\n" + groups[heading].FlagUsagesWrapped(helpWidth)
		}
		_, err := io.WriteString(c.OutOrStderr(), text)
		return err
	})
}

// SetHelpCommand gives root the command help, in the group ThisProgram.
func SetHelpCommand(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "show the help of a command", Args: cobra.ArbitraryArgs, RunE: Help, GroupID: ThisProgram,
	})
}

// Takes returns a check that the number of arguments is from least to most, and that no argument is empty. The
// text what, such as "alias", names the arguments in errors.
func Takes(what string, least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) >= least && len(given) <= most && !slices.Contains(given, "") {
			return nil
		}
		wanted := fmt.Sprintf("one %s", what)
		switch {
		case most == 0:
			wanted = fmt.Sprintf("no arguments, not %q", given[0])
		case least == 0:
			wanted = "at most one " + what
		case least == 2:
			wanted = "two " + what
		}
		return Usage("%s takes %s", c.CommandPath(), wanted).WithHint("%s", c.UseLine())
	}
}

// Help shows the help of a command. It fails for an unknown command.
func Help(c *cobra.Command, args []string) error {
	found, rest, err := c.Root().Find(args)
	if err != nil || found == nil {
		found, rest = c.Root(), args
	}
	if len(rest) > 0 {
		return UnknownCommand(found, rest)
	}
	found.InitDefaultHelpFlag()
	found.InitDefaultVersionFlag()
	return found.Help()
}
