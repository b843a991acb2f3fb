package login

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/cli"
	"relay/record"
)

// greeting returns the text shown at every login, also with -N: the account, its aliases, queued
// events, and refusals that relayd can predict.
func (g *Login) greeting(who relay.Actor, user string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "relay %s: hello %s\r\n", g.o.Site.Base.Hostname(), record.SafeText(who.AccountName))
	if g.all.waiting.Load() >= shortGreetingAt { // when many logins wait, a quick login is more useful than a full greeting
		return b.String() + "  many are coming in right now: see the command aliases\r\n"
	}
	ctx, done := g.BeginLookup(lookupTime)
	if ctx == nil {
		return ""
	}
	defer done()
	aliases, err := g.o.Accounts.Aliases(ctx, who)
	if err != nil {
		g.conn.Log().Warn("cannot list the aliases for the greeting", "err", err)
		return b.String()
	}
	slices.SortFunc(aliases, func(a, b relay.Alias) int { return cmp.Compare(a.Name, b.Name) })
	warning := g.warnings(who, user, aliases)
	if at, ok := g.all.commands.Get(visitor{who.Account, g.remote.Addr()}); ok && time.Since(at) < shortGreeting {
		return g.greetInOneLine(ctx, who, aliases) + warning
	}
	rows := greetRows - strings.Count(b.String()+warning, "\n")
	b.WriteString(g.greetAliases(ctx, aliases, rows))
	b.WriteString(warning)
	return b.String()
}

// shortGreeting is how long greetings are short after a command, because a user who runs commands gets a
// greeting with each.
const shortGreeting = time.Hour

// greetInOneLine returns account, aliases and queues without the states of the tunnels.
func (g *Login) greetInOneLine(ctx context.Context, who relay.Actor, aliases []relay.Alias) string {
	all := len(aliases)
	aliases = aliases[:min(all, greetMost)]
	states, err := g.o.Status(ctx, aliases)
	if err != nil || len(states) != len(aliases) {
		g.conn.Log().Warn("cannot read the alias states for the greeting", "err", err)
		states = make([]relay.AliasStatus, len(aliases))
	}
	line, gap := "relay "+g.o.Site.Base.Hostname()+": hello "+record.SafeText(who.AccountName), ": "
	for i, a := range aliases {
		words := a.Name + " " + g.o.Site.AliasURL(a.Name)
		if a.Settings.Paused {
			words += " (paused)"
		}
		if n := states[i].QueuedEvents; n > 0 {
			words += " (" + cli.Queued(n) + ")"
		}
		if len(line)+len(words) > greetBytes {
			return line + fmt.Sprintf(", and %d more\r\n", all-i)
		}
		line, gap = line+gap+words, ", "
	}
	if more := all - len(aliases); more > 0 {
		line += fmt.Sprintf(", and %d more", more)
	}
	return line + "\r\n"
}

// greetAliases returns lines with the names of aliases; the parameter rows is the largest number of lines. Aliases that
// have more to report than their state, such as queued events, come first.
func (g *Login) greetAliases(ctx context.Context, aliases []relay.Alias, rows int) string {
	site := &g.o.Site
	all := len(aliases)
	aliases = slices.Clone(aliases[:min(len(aliases), greetMost)])
	states, err := g.o.Status(ctx, aliases)
	if err != nil || len(states) != len(aliases) {
		g.conn.Log().Warn("cannot read the alias states for the greeting", "err", err)
		states = nil
	}
	var notable, other []string
	for i := range aliases {
		words := []string{aliases[i].Name, site.AliasURL(aliases[i].Name)}
		if states != nil {
			words = append(words, greetState(&aliases[i], &states[i])...)
		}
		if len(words) > 3 {
			notable = append(notable, greetLines(words))
		} else {
			other = append(other, greetLines(words))
		}
	}
	var b strings.Builder
	shown := 0
	for _, lines := range append(notable, other...) {
		left := rows
		if shown+1 < all {
			left-- // leaves a row for the line about the remaining aliases
		}
		if strings.Count(b.String()+lines, "\n") > left || b.Len()+len(lines) > greetBytes {
			break
		}
		b.WriteString(lines)
		shown++
	}
	if more := all - shown; more > 0 {
		fmt.Fprintf(&b, "  and %d more: see the command aliases\r\n", more)
	}
	return b.String()
}

// greetRows and greetBytes bound the greeting, because Dropbear shows only 19 line feeds and 2050 bytes.
// Dropbear removes carriage returns and counts again up to the former end of the text, so the last line feed
// counts twice: 18 rows are left. greetBytes bounds the lines about aliases, with space for the text before
// and after them.
const greetRows, greetBytes = 18, 1500

// greetMost is the largest number of aliases whose state is read for the greeting.
const greetMost = 50

// greetColumns is the largest length of a line of the greeting: PuTTY wraps lines at 76 characters, including
// its mark at the start of each line.
const greetColumns = 74

// greetLines joins words into lines of at most greetColumns characters.
func greetLines(words []string) string {
	var b strings.Builder
	line := " "
	for i, word := range words {
		gap := "  "
		if i == 0 {
			gap = " "
		}
		if len(line)+len(gap)+len(word) > greetColumns {
			b.WriteString(line + "\r\n")
			line, gap = "   ", " "
		}
		line += gap + word
	}
	return b.String() + line + "\r\n"
}

// greetState returns the state and the queue of an alias in a few words each.
func greetState(a *relay.Alias, st *relay.AliasStatus) []string {
	words := []string{"offline"}
	switch st.State {
	case relay.TunnelOnline:
		words[0] = "online"
	case relay.TunnelStale:
		words[0] = "silent"
	case relay.TunnelNever:
		words[0] = "never online yet"
	}
	if t := st.Tunnel; t != nil && (st.State == relay.TunnelOnline || st.State == relay.TunnelStale) {
		words[0] += fmt.Sprintf(" from %s since %s", t.Remote.Addr(), t.Since.Local().Format("15:04:05 MST"))
		words = append(words, "by "+record.SafeTextMax(t.User, 24)+", "+record.SafeTextMax(t.Client, 32)+"; a new forward takes over")
	}
	if a.Settings.Paused {
		words = append(words, "paused: all is queued until this is switched off in the dashboard")
	}
	if st.QueuedEvents > 0 {
		words = append(words, cli.Queued(st.QueuedEvents)+"; to send: replay-queued")
	}
	if waiting := st.Queued - st.QueuedEvents; waiting > 0 {
		words = append(words, fmt.Sprintf("%d waiting to go out", waiting))
	}
	return words
}

// warnings returns warnings, with advice, about refusals that follow from key and user name alone. The
// forward is still unknown. The text is the same for a name of another account and for a name that does not
// exist.
func (g *Login) warnings(who relay.Actor, user string, aliases []relay.Alias) string {
	if len(aliases) == 0 && g.o.NoClaim {
		return "  -R would be refused: no alias yet; make one in the dashboard, or have an\r\n    admin run: relayd alias add\r\n"
	}
	first := ""
	label := g.o.Site.AliasLabel(user)
	if len(aliases) == 0 {
		first = "  no alias yet: forward a free name to make it yours,\r\n    -R ALIAS:80:localhost:3000\r\n" +
			"  where the relay refuses that, an admin makes one: relayd alias add\r\n"
		if relay.ValidLabel(label) && !g.o.Site.Reserved(label) {
			return first // a forward without a name claims the user name, if it is free
		}
	}
	_, only := OnlyAlias(who, aliases)
	if only || slices.ContainsFunc(aliases, func(a relay.Alias) bool { return a.Name == label }) {
		return ""
	}
	unless, why := "", "is reserved"
	switch {
	case !relay.ValidLabel(label):
		why = "cannot be an alias"
	case g.o.Site.Reserved(label):
	case g.o.NoClaim:
		why = "is no alias of yours"
	default:
		unless, why = " (unless free to claim)", "is no alias of yours"
	}
	line, gap := "  -R without an alias would be refused"+unless+": user name", " "
	second := "\"" + record.SafeTextMax(user, 40) + "\" " + why + ";"
	if len(line)+len(gap)+len(second) > greetColumns {
		gap = "\r\n    "
	}
	return first + line + gap + second + "\r\n    -R ALIAS:80:localhost:3000 names one\r\n"
}
