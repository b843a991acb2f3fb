package main

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

// shareOf is the JSON form of a share in the lists of the operator, who sees the shares of all accounts.
type shareOf struct {
	record.Share
	Event string `json:"event"`
	Alias string `json:"alias"`
	User  string `json:"user"`
}

func (c *program) shareCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "list all shares, without their links",
		Example: "  relayd share list --alias stripe-dev",
	}
	alias := list.Flags().String("alias", "", "list only those of one alias")
	user := list.Flags().String("user", "", "list only those of one account")
	listing(c, list, "ID\tEVENT\tALIAS\tUSER\tMADE\tEXPIRES\tVIEW\tUSES", func(ctx context.Context, o *operator) ([]relay.Share, error) {
		shares, err := o.store.AllShares(ctx, o.who, *alias, *user)
		if err != nil || len(shares) > 0 {
			return shares, err
		}
		// An empty list must not hide that a name is misspelled: the operator would take it for "nothing leaked".
		if *alias != "" {
			if _, err := o.store.Alias(ctx, o.who, *alias); err != nil {
				return nil, explainNotFound(err, noAlias, *alias)
			}
		}
		if *user != "" {
			_, err = o.accountOf(ctx, *user)
		}
		return shares, err
	}, func(s relay.Share) shareOf {
		return shareOf{record.OfShare(s, "", relay.Site{}), s.Event.String(), s.Alias, s.Owner}
	}, func(s shareOf) []string {
		view := "-"
		if s.View {
			view = "view"
		}
		return []string{s.ID, s.Event, s.Alias, s.User, when(s.CreatedAt.Time), whenOr(s.ExpiresAt), view, strconv.Itoa(s.Uses)}
	})
	remove := c.operate(&cobra.Command{
		Use: "rm ID|URL", Short: "revoke a share by its id, the end of its id or its link, or a login link or invite by itself", Args: cli.Takes("ID or URL", 1, 1),
	}, func(ctx context.Context, o *operator, args []string) error {
		if kind, secret := linkOf(args[0]); kind == "login" || kind == "invite" {
			kind, user, err := o.store.RemoveLink(ctx, o.who, secret)
			if err != nil {
				return explainNotFound(err, "this link was used, has ended, or is of another relay: it opens nothing; a login by it is in `relayd session list`")
			}
			o.report("%s link of %s revoked", kind, user)
			return nil
		}
		share, err := findShare(ctx, o, args[0])
		if err == nil {
			err = o.store.RemoveShare(ctx, o.who, share.Event, share.ID)
		}
		if err != nil {
			return explainNotFound(err, "there is no such share, or it has ended: it opens nothing; `relayd share list` shows the others")
		}
		o.report("share %s of %s revoked", share.ID, share.Event)
		return nil
	})
	return group("share", "shares: list, rm", list, remove)
}

// minIDEnd is the smallest length of the end of an id that names a share; package cli has the same limit for
// events.
const minIDEnd = 4

// findShare finds a share by its id or the end of its id, by its link, by its replay URL, or by the token in
// one of these.
func findShare(ctx context.Context, o *operator, text string) (relay.Share, error) {
	_, token := linkOf(text)
	_, share, err := o.store.ShareActor(ctx, cmp.Or(token, text), false)
	if !errors.Is(err, relay.ErrNotFound) || token != "" || len(text) < minIDEnd {
		return share, err
	}
	list, err := o.store.AllShares(ctx, o.who, "", "")
	if err != nil {
		return relay.Share{}, err
	}
	list = slices.DeleteFunc(list, func(s relay.Share) bool {
		return s.ID != text && !strings.HasSuffix(strings.ToLower(strings.TrimPrefix(s.ID, "shr_")), strings.ToLower(text))
	})
	switch len(list) {
	case 0:
		return relay.Share{}, relay.ErrNotFound
	case 1:
		return list[0], nil
	}
	return relay.Share{}, cli.Errorf(cli.ExitFailure, "the ids of %d shares end so; give more of it", len(list))
}

// linkPath matches the part of an address that names a share, a login link or an invite by its secret. A
// secret is base64url, so the punctuation behind a link in a text does not belong to it.
var linkPath = regexp.MustCompile(`/(s|shared|login|invite)/([\w-]+)`)

// linkOf returns the secret in an address, with or without its scheme, and the word before it; "" if the
// address is not that of a share or a one-time link.
func linkOf(text string) (kind, secret string) {
	if m := linkPath.FindStringSubmatch(text); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// sessionOf is the JSON form of a dashboard login for the operator.
type sessionOf struct {
	record.Session
	User string `json:"user"`
}

func (c *program) sessionCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "list the logins to the dashboard"}
	user := list.Flags().String("user", "", "list only those of one account")
	listing(c, list, "ID\tUSER\tSINCE\tLAST USED\tEXPIRES\tFROM\tBROWSER", func(ctx context.Context, o *operator) ([]sessionOf, error) {
		return sessionsOf(ctx, o, *user)
	}, func(s sessionOf) sessionOf { return s }, func(s sessionOf) []string {
		return []string{s.ID, s.User, when(s.CreatedAt.Time), whenOr(s.LastUsedAt), whenOr(s.ExpiresAt), cmp.Or(s.RemoteAddr, "-"), cmp.Or(s.UserAgent, "-")}
	})
	remove := c.changing(&cobra.Command{Use: "rm ID", Short: "end a login to the dashboard", Args: cli.Takes("ID", 1, 1)},
		"there is no login %s; `relayd session list` shows them", "login %s ended",
		func(ctx context.Context, o *operator, id string) error { return o.store.RemoveSession(ctx, o.who, id) })
	return group("session", "logins to the dashboard: list, rm", list, remove)
}

// sessionsOf lists the logins of an account, or of all accounts if user is "".
func sessionsOf(ctx context.Context, o *operator, user string) (list []sessionOf, err error) {
	if user != "" {
		if _, err := o.accountOf(ctx, user); err != nil {
			return nil, err
		}
	}
	accounts, err := o.store.Accounts(ctx, o.who)
	if err != nil {
		return nil, err
	}
	names := map[int64]string{}
	for _, a := range accounts {
		names[a.ID] = a.Name
	}
	sessions, err := o.store.Sessions(ctx, o.who)
	for _, s := range sessions {
		if name := names[s.Account]; user == "" || name == user {
			list = append(list, sessionOf{record.OfSession(s, o.who), name})
		}
	}
	return list, err
}
