package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"relay/client"
	"relay/record"
)

// prompter returns a Prompter that asks at the terminal, or nil if stdin or stderr is not a terminal.
func (p *program) prompter() client.Prompter {
	talk, ok := p.err.(*os.File)
	if !ok || !term.IsTerminal(int(p.in.Fd())) || !term.IsTerminal(int(talk.Fd())) {
		return nil
	}
	return terminalPrompter{p}
}

// terminalPrompter asks the user at the terminal.
type terminalPrompter struct{ *program }

// Confirm returns true for y and yes, and false for any other answer.
func (a terminalPrompter) Confirm(question string) bool {
	var lines []string
	for line := range strings.Lines(question) {
		lines = append(lines, sayPrefix+record.SafeText(strings.TrimRight(line, "\n")))
	}
	_, _ = io.WriteString(a.err, strings.Join(lines, "\n")+" [y/N] ")
	line, _ := orInterrupted(a.interrupted, func() (string, error) {
		return bufio.NewReader(io.LimitReader(a.in, maxAnswer)).ReadString('\n')
	})
	if !strings.HasSuffix(line, "\n") { // the user typed Ctrl+D or Ctrl+C
		_, _ = io.WriteString(a.err, "\n")
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// Passphrase asks for the passphrase of a key file and reads it without echo.
func (a terminalPrompter) Passphrase(file string) ([]byte, error) {
	_, _ = io.WriteString(a.err, sayPrefix+"passphrase of "+record.SafeText(file)+": ")
	fd := int(a.in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	pass, err := orInterrupted(a.interrupted, func() ([]byte, error) { return term.ReadPassword(fd) })
	if errors.Is(err, errInterrupted) {
		_ = term.Restore(fd, before)
	}
	_, _ = io.WriteString(a.err, "\n")
	return pass, err
}

// maxAnswer bounds the answer to a question, in bytes.
const maxAnswer = 4096

var errInterrupted = errors.New("interrupted")

// orInterrupted returns the result of the function read, or errInterrupted if Ctrl+C comes first. It cannot
// end a blocked read, which goes on until the program ends.
func orInterrupted[T any](interrupted <-chan struct{}, read func() (T, error)) (T, error) {
	type answer struct {
		typed T
		err   error
	}
	came := make(chan answer, 1)
	go func() {
		typed, err := read()
		came <- answer{typed, err}
	}()
	select {
	case a := <-came:
		return a.typed, a.err
	case <-interrupted:
		var none T
		return none, errInterrupted
	}
}
