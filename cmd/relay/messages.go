package main

import (
	"fmt"
	"time"

	"relay/client"
	"relay/record"
)

// This file and the other messages_*.go hold the texts of this program, except errors,
// which are written where they occur, and those of the flag library. Lines on stderr
// begin with the name of the program, are in lower case and have no full stop.

const (
	sayPrefix  = "relay: "
	hintPrefix = "hint: "
	yesNo      = " [y/N] "
)

const (
	rootShort   = "put a local server behind a permanent public URL, and replay what was sent to it"
	rootLong    = "relay puts a local server behind a permanent public URL, and replays what was sent to it."
	rootExample = `  relay up --port 3000 --alias stripe-dev
  relay events stripe-dev -f
  relay replay evt_01k...`

	flagServer   = "SSH address `HOST:PORT` of the relay (RELAY_SERVER, then webhooks.yaml, then the newest login, then " + client.DefaultServer + ")"
	flagIdentity = "log in with this private key `FILE` and no other (default: ssh-agent, then ~/.ssh)"
	flagConfig   = "use this `FILE` instead of the nearest webhooks.yaml"
	flagOutput   = "`FORMAT` of what is printed: compact, quiet or json"
	flagHostKey  = "accept only the host key with this `FINGERPRINT` (SHA256:...)"
	flagNoColor  = "no colors (also NO_COLOR)"
	flagJSON     = "print the JSON of the API; a stream is one object per line"

	upShort = "connect a local server to one or more aliases"
	upLong  = `Connect a local server to one or more aliases and log the requests.
With a webhooks.yaml in this directory or a parent the alias name alone suffices, and no
name means all of its aliases. A lost connection is reopened automatically.
At a terminal the key R delivers the events that were queued while an alias was offline.
` + upJSON
	upExample = `  relay up --port 3000 --alias stripe-dev
  relay up --target https://localhost:8443 --alias github-dev --host-header rewrite
  relay up --echo --alias try-it
  relay up`
	flagPort       = "port of the local HTTP server; 127.0.0.1 is dialed, then ::1"
	flagAlias      = "alias to attach to, the same as an argument"
	flagTarget     = "`URL` of the local server: http or https, no path; loopback certificates are not verified"
	flagHostHeader = "Host header that the local server gets: preserve, rewrite or a literal `VALUE`, while this tunnel is attached"
	flagEcho       = "answer every request with its own body instead of having a local server"

	whoamiShort  = "show your account and how the relay is reached"
	aliasesShort = "list your aliases"
	eventsShort  = "list the newest events of an alias, the newest last"
	flagCount    = "how many, `N` is 1 to 200"
	flagFollow   = "continue with new events"
	hintAliases  = "relay aliases lists yours"
	hintEvents   = "relay events ALIAS lists those of an alias"
	someMissing  = "some requests are not shown: too many at the same time"
	showShort    = "show an event with its request, responses and attempts"
	replayShort  = "send an event again, byte for byte, to the tunnel that is online now"
	queuedShort  = "deliver the events that were queued while the alias was offline"
	configShort  = "inspect webhooks.yaml"
	checkShort   = "check a webhooks.yaml and print its meaning"
	versionShort = "print the version"

	pressCtrlC   = "Press Ctrl+C to disconnect"
	askingAgain  = "; asking again"
	stoppingNow  = "the relay is stopping"
	movingNow    = "this node of the relay takes no more clients; connecting to another one"
	backAgain    = "connected to the relay again"
	goodbye      = "disconnected"
	noConfig     = "there is no " + client.ConfigName + " in this directory or a parent"
	noConfigHint = "create one, or name one with --config FILE"
)

// nothingYet is printed instead of an empty list.
var nothingYet = map[string]string{
	"aliases": "there are no aliases yet; relay up --port 3000 --alias NAME creates one",
	"events":  "there are no events yet",
}

func connectedTo(host string) string  { return "Connected to relay " + host }
func aliasOnline(alias string) string { return "Alias " + alias + " is online" }
func publicURL(url string) string     { return "Public URL    " + url }
func localTarget(url string) string   { return "Local target  " + url }
func onlineAgain(alias string) string { return "alias " + alias + " is online" }
func offlineNow(alias string) string  { return "alias " + alias + " is offline: requests are queued" }

func takenOver(alias string) string {
	return "alias " + alias + " was taken over by a newer connection"
}
func passphraseOf(file string) string  { return "passphrase of " + file + ": " }
func refused(alias, why string) string { return "alias " + alias + " was refused: " + why }

func queuedWhileOffline(n int, alias string) string {
	return fmt.Sprintf("%d %s queued while offline; press R or run: relay replay-queued %s", n, plural(n, "event"), alias)
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func lostConnection(err error, next time.Duration) string {
	if next < 50*time.Millisecond {
		return err.Error() + "; connecting again"
	}
	return fmt.Sprintf("%v; connecting again in %.1f s", err, next.Seconds())
}

func released(r record.Released) string {
	if r.Released == 0 {
		return "no event of " + r.Alias + " was queued"
	}
	return fmt.Sprintf("released %d %s of %s: they are delivered while the alias is online", r.Released, plural(r.Released, "event"), r.Alias)
}

func me(m record.Me) string {
	s := m.User
	if m.Admin {
		s += " (admin)"
	}
	if m.Alias != nil {
		s += ", alias " + *m.Alias + " only"
	}
	return s
}

func aliasLine(a *record.Alias) string {
	line := fmt.Sprintf("%-20s %-8s %s", a.Name, a.State, a.URL)
	if a.QueuedEvents > 0 {
		line += fmt.Sprintf("  %d %s queued", a.QueuedEvents, plural(a.QueuedEvents, "event"))
	}
	return line
}

func configSummary(name string, c *client.Config) string {
	server := c.Server
	if server == "" {
		server = client.DefaultServer + " (default)"
	}
	return fmt.Sprintf("%s is fine: server %s, %d %s", name, server, len(c.Aliases), pluralAlias(len(c.Aliases)))
}

func pluralAlias(n int) string {
	if n == 1 {
		return "alias"
	}
	return "aliases"
}

func configAlias(f client.Forward) string {
	s := fmt.Sprintf("%-20s %s", f.Alias, f.Target.URL)
	if f.Target.HostHeader != "" {
		s += "  Host: " + f.Target.HostHeader
	}
	return s
}
