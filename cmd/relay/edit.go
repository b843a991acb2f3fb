package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"relay/cli"
)

// edit writes a text to a temporary file, opens the file in the program that EDITOR names, and calls use with
// the edited text. Only the user can read the file. It is removed afterwards, unless use fails: in that case the
// hint of the error names the file.
func (p *program) edit(ctx context.Context, text []byte, use func(edited []byte) error) error {
	editor := p.getenv("EDITOR")
	switch {
	case p.prompter() == nil:
		return cli.Usage("there is no terminal to edit the request at")
	case editor == "":
		return cli.Usage("no editor is named").WithHint("export EDITOR=vi")
	}
	failed := func(err error) error {
		return &cli.Error{Exit: cli.ExitFailure, Text: "nothing was sent: the request could not be edited", Cause: err}
	}
	folder, err := os.MkdirTemp("", "relay-")
	if err != nil {
		return failed(err)
	}
	kept := false
	defer func() {
		if !kept {
			_ = os.RemoveAll(folder)
		}
	}()
	file := filepath.Join(folder, "request.http")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return failed(err)
	}
	// EDITOR may have arguments, so a shell splits it into words, as git and crontab do.
	c := exec.CommandContext(ctx, "sh", "-c", editor+` "$@"`, "sh", file)
	c.Stdin, c.Stdout, c.Stderr = p.in, p.err, p.err
	if err := c.Run(); err != nil {
		return failed(err)
	}
	if text, err = os.ReadFile(file); err != nil {
		return failed(err)
	}
	err = use(text)
	if e, ok := errors.AsType[*cli.Error](err); ok {
		kept = true
		hint := "your text is stored in " + file
		if e.Hint != "" {
			hint = e.Hint + "; " + hint
		}
		return e.WithHint("%s", hint)
	}
	return err
}
