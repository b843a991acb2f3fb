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

// greetAliases is how many aliases the greeting names.
const greetAliases = 20

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
	shown := aliases[:min(len(aliases), greetAliases)]
	states, err := c.gate.o.Attach.Status(ctx, shown)
	for i := range shown {
		fmt.Fprintf(&b, "  %s  %s", shown[i].Name, site.AliasURL(shown[i].Name))
		if err == nil && i < len(states) {
			for _, words := range greetState(&states[i]) {
				b.WriteString("\r\n    " + words) // short: PuTTY breaks lines of 76
			}
		}
		b.WriteString("\r\n")
	}
	if more := len(aliases) - len(shown); more > 0 {
		fmt.Fprintf(&b, "  and %d more: see the command aliases\r\n", more)
	}
	b.WriteString(c.foretell(who, user, aliases))
	return b.String()
}

// greetState is state and queue of an alias in a few words.
func greetState(st *relay.AliasStatus) []string {
	words := []string{"offline"}
	switch {
	case st.State == relay.TunnelOnline && st.Tunnel != nil:
		words[0] = fmt.Sprintf("online from %s since %s; a new forward takes over",
			st.Tunnel.Remote.Addr(), st.Tunnel.Since.Local().Format(time.TimeOnly))
	case st.State == relay.TunnelOnline:
		words[0] = "online"
	}
	if st.QueuedEvents > 0 {
		words = append(words, queuedEvents(st.QueuedEvents))
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

// foretell warns that a forward without alias would be refused.
func (c *conn) foretell(who relay.Actor, user string, aliases []relay.Alias) string {
	label := normalise(user, c.gate.o.Site.AliasDomain)
	if relay.ValidLabel(label) && !c.gate.reserved(label) {
		return ""
	}
	if _, ok := onlyAlias(who, aliases); ok {
		return ""
	}
	if len(aliases) == 0 {
		return "  no alias yet: forward a name to make it yours,\r\n    -R ALIAS:80:localhost:3000\r\n"
	}
	return "  a forward must name its alias: -R ALIAS:80:localhost:3000\r\n"
}
