package sshgate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// greeting is what everybody reads at login, with -N too: account, aliases, what
// waits, and refusals that can be foretold.
func (c *conn) greeting(who relay.Actor, user string) string {
	ctx, cancel := context.WithTimeout(c.ctx, lookupTime)
	defer cancel()
	site := &c.gate.o.Site
	var b strings.Builder
	fmt.Fprintf(&b, "relay %s: hello %s\r\n", site.Base.Hostname(), record.SafeText(who.AccountName))
	aliases, err := c.gate.o.Accounts.Aliases(ctx, who)
	if err != nil {
		c.log.Warn("list aliases for the greeting", "err", err)
		return b.String()
	}
	slices.SortFunc(aliases, func(a, b relay.Alias) int { return cmp.Compare(a.Name, b.Name) })
	b.WriteString(c.greetAliases(ctx, aliases))
	b.WriteString(c.foretell(who, user, aliases))
	return b.String()
}

// greetAliases names aliases, those about which there is something to say before the
// others, as far as there is room.
func (c *conn) greetAliases(ctx context.Context, aliases []relay.Alias) string {
	site := &c.gate.o.Site
	aliases = slices.Clone(aliases[:min(len(aliases), greetMost)])
	states, err := c.gate.o.Attach.Status(ctx, aliases)
	if err != nil || len(states) != len(aliases) {
		c.log.Warn("states for the greeting", "err", err)
		states = nil
	}
	var notable, other []string
	for i := range aliases {
		words := []string{aliases[i].Name, site.AliasURL(aliases[i].Name)}
		if states == nil {
			other = append(other, greetLines(words))
			continue
		}
		words = append(words, greetState(&aliases[i], &states[i])...)
		if len(words) > 3 {
			notable = append(notable, greetLines(words))
		} else {
			other = append(other, greetLines(words))
		}
	}
	var b strings.Builder
	shown := 0
	for _, lines := range append(notable, other...) {
		if strings.Count(b.String()+lines, "\n") > greetRows || b.Len()+len(lines) > greetBytes {
			break
		}
		b.WriteString(lines)
		shown++
	}
	if more := len(notable) + len(other) - shown; more > 0 {
		fmt.Fprintf(&b, "  and more: see the command aliases\r\n")
	}
	return b.String()
}

// Dropbear shows 20 lines of a greeting, and no more than 2000 bytes. These leave room
// for what stands before and after the aliases.
const greetRows, greetBytes = 16, 1500

// greetMost is how many aliases are looked at.
const greetMost = 50

// greetColumns is how long a line of the greeting may be: PuTTY breaks lines of 76,
// its own mark in front of them included.
const greetColumns = 74

// greetLines joins words as long as they stand in a line.
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

// greetState is state and queue of an alias in a few words each.
func greetState(a *relay.Alias, st *relay.AliasStatus) []string {
	var words []string
	switch t := st.Tunnel; {
	case (st.State == relay.TunnelOnline || st.State == relay.TunnelStale) && t != nil:
		state := "online"
		if st.State == relay.TunnelStale {
			state = "silent"
		}
		words = append(words,
			fmt.Sprintf("%s from %s since %s", state, t.Remote.Addr(), t.Since.Local().Format(time.TimeOnly)),
			"by "+record.SafeTextMax(t.User, 24)+", "+record.SafeTextMax(t.Client, 32)+"; a new forward takes over")
	default:
		words = append(words, map[relay.TunnelState]string{
			relay.TunnelOnline: "online", relay.TunnelStale: "silent", relay.TunnelNever: "never online yet",
		}[st.State])
		if words[0] == "" {
			words[0] = "offline"
		}
	}
	if a.Settings.Paused {
		words = append(words, "paused: all is queued until this is switched off in the dashboard")
	}
	if st.QueuedEvents > 0 {
		words = append(words, queuedEvents(st.QueuedEvents)+"; to send: replay-queued")
	}
	if waiting := st.Queued - st.QueuedEvents; waiting > 0 {
		words = append(words, fmt.Sprintf("%d waiting to go out", waiting))
	}
	return words
}

func queuedEvents(n int) string {
	if n == 1 {
		return "1 event queued while offline"
	}
	return fmt.Sprintf("%d events queued while offline", n)
}

// foretell warns of what would be refused, as far as key and user name tell, and
// says what to do.
func (c *conn) foretell(who relay.Actor, user string, aliases []relay.Alias) string {
	_, only := onlyAlias(who, aliases)
	label := normalise(user, c.gate.o.Site.AliasDomain)
	switch {
	case len(aliases) == 0:
		return "  no alias yet: forward a free name to make it yours,\r\n    -R ALIAS:80:localhost:3000\r\n" +
			"  where the relay refuses that, an admin makes one: relayd alias add\r\n"
	case only || relay.ValidLabel(label) && !c.gate.reserved(label):
		return ""
	}
	return "  a forward must name its alias: -R ALIAS:80:localhost:3000\r\n"
}
