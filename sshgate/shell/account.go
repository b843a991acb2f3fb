package shell

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record"
)

const (
	// linkTime is how long a dashboard link of the command login works.
	linkTime = 15 * time.Minute
	// shareTime is how long a share works unless said otherwise.
	shareTime = 7 * 24 * time.Hour
)

func (k *call) whoami() error {
	me := record.OfActor(k.s.Who)
	return k.print(me, func() string {
		admin := ""
		if me.Admin {
			admin = " (admin)"
		}
		return record.SafeText(me.User) + admin + "\n"
	})
}

// QueuedEvents says how many events were queued while offline.
func QueuedEvents(n int) string {
	if n == 1 {
		return "1 event queued while offline"
	}
	return fmt.Sprintf("%d events queued while offline", n)
}

func (k *call) aliases() error {
	aliases, err := k.s.Accounts.Aliases(k.s.Ctx, k.s.Who)
	if err != nil {
		return err
	}
	slices.SortFunc(aliases, func(a, b relay.Alias) int { return cmp.Compare(a.Name, b.Name) })
	states, err := k.s.Tunnels.Status(k.s.Ctx, aliases)
	if err != nil {
		return err
	}
	forms := make([]*record.Alias, 0, len(aliases))
	for i := range aliases {
		if i < len(states) {
			forms = append(forms, record.OfAlias(&aliases[i], states[i], k.s.Site))
		}
	}
	return k.print(record.ListOf(forms), func() string {
		var b strings.Builder
		for _, a := range forms {
			fmt.Fprintf(&b, "%-24s %-8s %s", a.Name, a.State, a.URL)
			if a.QueuedEvents > 0 {
				b.WriteString("  " + QueuedEvents(a.QueuedEvents))
			}
			b.WriteString("\n")
		}
		switch {
		case len(forms) > 0:
		case k.s.NoClaim:
			k.talk("no alias yet; make one in the dashboard, or have an admin run: relayd alias add")
		default:
			k.talk("no alias yet; ssh -N -R ALIAS:80:localhost:3000 makes one")
		}
		return b.String()
	})
}

func (k *call) keys() error {
	keys, err := k.s.Accounts.Keys(k.s.Ctx, k.s.Who, k.s.Who.AccountName)
	if err != nil {
		return err
	}
	forms := make([]record.Key, 0, len(keys))
	for _, key := range keys {
		forms = append(forms, record.OfKey(key))
	}
	return k.print(record.ListOf(forms), func() string {
		var b strings.Builder
		for _, key := range forms {
			fmt.Fprintf(&b, "%s  %s  %s", record.SafeText(key.Fingerprint), record.SafeText(key.Type), record.SafeText(key.Name))
			if key.ID == k.s.Who.Credential {
				b.WriteString("  (this key)")
			}
			b.WriteString("\n")
		}
		return b.String()
	})
}

// login makes a link for the one who holds the key of this connection.
func (k *call) login() error {
	if err := k.s.Limits.Create(k.s.Who); err != nil {
		return err
	}
	secret, err := k.s.Accounts.CreateLoginLink(k.s.Ctx, k.s.Who, k.s.Who.AccountName, linkTime)
	if err != nil {
		return err
	}
	link := struct {
		URL       string      `json:"url"`
		ExpiresAt record.Time `json:"expiresAt"`
	}{k.s.Site.URL("/login/" + secret), record.Time{Time: time.Now().Add(linkTime)}}
	k.talk("the link opens the dashboard as " + record.SafeText(k.s.Who.AccountName) + ", once, within " + relay.FormatDuration(linkTime))
	return k.print(link, func() string { return link.URL + "\n" })
}

// tokenName is the longest name of a token.
const tokenName = 100

// tokenLife is how long a token of a session works after it was used last.
const tokenLife = 90 * 24 * time.Hour

// token makes an API token with all scopes of the account. It expires when it was not used
// for tokenLife. The answer is the token and nothing else, so that a script can keep it.
func (k *call) token() error {
	name := "made by ssh"
	if given, ok := k.flags["name"]; ok {
		name = strings.TrimSpace(given)
	}
	if name == "" || record.SafeTextMax(name, tokenName) != name {
		return usage("--name takes up to 100 characters that can be printed")
	}
	if err := k.s.Limits.Create(k.s.Who); err != nil {
		return err
	}
	made, secret, err := k.s.Accounts.CreateToken(k.s.Ctx, k.s.Who, relay.Token{
		Name: name, ExpiresAt: time.Now().Add(tokenLife), Renewal: tokenLife,
	})
	if err != nil {
		return err
	}
	k.talk("the token does all that " + record.SafeText(k.s.Who.AccountName) + " may, and expires when it was not used for " + relay.FormatDuration(tokenLife))
	return k.print(record.OfToken(made, secret), func() string { return secret + "\n" })
}

func (k *call) share() error {
	expires := time.Now().Add(shareTime)
	if text, given := k.flags["expires"]; given {
		switch d, err := relay.ParseDuration(text); {
		case text == "never":
			expires = time.Time{}
		case err != nil || d == 0:
			return usage("--expires takes a duration such as 7d, or never")
		default:
			expires = time.Now().Add(d)
		}
	}
	_, view := k.flags["view"]
	e, err := k.event(0) // before it is counted
	if err != nil {
		return err
	}
	if err := k.s.Limits.Create(k.s.Who); err != nil {
		return err
	}
	share, secret, err := k.s.Accounts.CreateShare(k.s.Ctx, k.s.Who, e.ID, relay.Share{View: view, ExpiresAt: expires})
	if err != nil {
		return err
	}
	form := record.OfShare(share, secret, k.s.Site)
	return k.print(form, func() string {
		until := "never expires"
		if form.ExpiresAt != nil {
			until = "expires " + form.ExpiresAt.String()
		}
		return fmt.Sprintf("%s\ncurl -X POST %s\n%s; remove it in the dashboard\n", form.URL, form.ReplayURL, until)
	})
}

// mark changes what the flags name of the notes about an event, and shows them.
func (k *call) mark() error {
	id, err := relay.ParseID(k.words[0])
	if err != nil {
		return err
	}
	pinned, setPinned := k.flags["pinned"]
	label, setLabel := k.flags["label"]
	note, setNote := k.flags["note"]
	switch {
	case setPinned && pinned != "true" && pinned != "false":
		return usage("--pinned takes true or false")
	case !setPinned && !setLabel && !setNote:
		return usage("mark needs --pinned, --label or --note")
	}
	err = k.s.Accounts.MarkEvent(k.s.Ctx, k.s.Who, id, func(m *relay.Mark) {
		if setPinned {
			m.Pinned = pinned == "true"
		}
		if setLabel {
			m.Label = label
		}
		if setNote {
			m.Note = note
		}
	})
	if err != nil {
		return err
	}
	e, err := k.event(record.MaxBody)
	if err != nil {
		return err
	}
	form := record.Of(e, k.s.Site, time.Now())
	return k.print(form, func() string { return strings.TrimSpace(form.ID+"  "+record.MarkText(&form.Summary)) + "\n" })
}
