package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"relay/cli"
)

// edit lets the person edit a text with the program that EDITOR names. Its file is read by nobody else, and
// removed.
func (p *program) edit(ctx context.Context, text []byte) ([]byte, error) {
	editor := p.getenv("EDITOR")
	switch {
	case p.prompter() == nil:
		return nil, cli.Usage("there is no terminal to edit the request at")
	case editor == "":
		return nil, cli.Usage("no editor is named").WithHint("export EDITOR=vi")
	}
	failed := func(err error) ([]byte, error) {
		return nil, &cli.Error{Exit: cli.ExitFailure, Text: "nothing was sent: the request could not be edited", Cause: err}
	}
	folder, err := os.MkdirTemp("", "relay-")
	if err != nil {
		return failed(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "request.http")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return failed(err)
	}
	// EDITOR may have arguments: a shell takes it apart, as git and crontab have it.
	c := exec.CommandContext(ctx, "sh", "-c", editor+` "$@"`, "sh", file)
	c.Stdin, c.Stdout, c.Stderr = p.in, p.err, p.err
	if err := c.Run(); err != nil {
		return failed(err)
	}
	if text, err = os.ReadFile(file); err != nil {
		return failed(err)
	}
	return text, nil
}
