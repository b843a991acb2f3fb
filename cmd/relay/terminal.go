package main

import (
	"bufio"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"relay/client"
	"relay/record"
)

// asker gives somebody to ask, nil when stdin or stderr is no terminal.
func (p *program) asker() client.Asker {
	talk, ok := p.err.(*os.File)
	if !ok || !term.IsTerminal(int(p.in.Fd())) || !term.IsTerminal(int(talk.Fd())) {
		return nil
	}
	return person{in: p.in, talk: talk}
}

// person is whoever sits at the terminal.
type person struct {
	in   *os.File
	talk io.Writer
}

// Confirm takes yes and y for a yes and everything else for a no.
func (a person) Confirm(question string) bool {
	var lines []string
	for line := range strings.Lines(question) {
		lines = append(lines, sayPrefix+record.SafeText(strings.TrimRight(line, "\n")))
	}
	_, _ = io.WriteString(a.talk, strings.Join(lines, "\n")+yesNo)
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// Passphrase reads without showing what is typed.
func (a person) Passphrase(file string) ([]byte, error) {
	_, _ = io.WriteString(a.talk, sayPrefix+passphraseOf(record.SafeText(file)))
	pass, err := term.ReadPassword(int(a.in.Fd()))
	_, _ = io.WriteString(a.talk, "\n")
	return pass, err
}
