package sshgate

import (
	"context"
	"errors"
	"strings"

	"relay"
	"relay/record"
)

// maxBindLength is longer than every sensible bind string or user name.
const maxBindLength = 300

// neutralBinds are what clients send when no alias was meant.
var neutralBinds = map[string]bool{
	"": true, "*": true, "localhost": true, "127.0.0.1": true, "0.0.0.0": true, "::": true, "::1": true,
}

// parseBind reads the alias out of a bind string; "" means that it names none.
func parseBind(bind string, site *relay.Site) (label string, err *relay.Error) {
	if neutralBinds[strings.TrimSuffix(strings.ToLower(bind), ".")] {
		return "", nil
	}
	if label = site.AliasLabel(bind); relay.ValidLabel(label) {
		return label, nil
	}
	return "", relay.Errorf(relay.CodeValidationFailed,
		"%q cannot be an alias; use 1 to 63 letters, digits and inner hyphens", record.SafeTextMax(bind, 80))
}

// resolve finds the alias that a forward means: the bind string if it names one,
// else the user name, else the only alias of the account.
func (c *conn) resolve(ctx context.Context, bind string) (*relay.Alias, *relay.Error) {
	label, bad := parseBind(bind, &c.srv.o.Site)
	if bad != nil {
		return nil, bad
	}
	if label != "" {
		return c.claim(ctx, label)
	}
	user := c.srv.o.Site.AliasLabel(c.user)
	var refusal *relay.Error
	if relay.ValidLabel(user) && !c.srv.o.Site.Reserved(user) {
		var a *relay.Alias
		if a, refusal = c.claim(ctx, user); refusal == nil {
			return a, nil
		}
		if refusal.Code != relay.CodeNotFound && refusal.Code != relay.CodeConflict && refusal.Code != relay.CodeValidationFailed {
			return nil, refusal
		}
	}
	aliases, err := c.srv.o.Accounts.Aliases(ctx, c.who)
	if err != nil {
		return nil, relay.AsError(err)
	}
	if only, ok := onlyAlias(c.who, aliases); ok {
		return c.claim(ctx, only.Name)
	}
	if refusal != nil {
		return nil, refusal
	}
	return nil, relay.Errorf(relay.CodeValidationFailed, "the forward names no alias; use -R ALIAS:80:localhost:3000")
}

func (c *conn) claim(ctx context.Context, label string) (*relay.Alias, *relay.Error) {
	if c.srv.o.Site.Reserved(label) {
		return nil, relay.Errorf(relay.CodeValidationFailed, "%q is a reserved name; choose another one", label)
	}
	a, err := c.srv.o.Accounts.ClaimAlias(ctx, c.who, label)
	switch {
	case errors.Is(err, relay.ErrNotFound):
		return nil, relay.Errorf(relay.CodeNotFound, "there is no alias %q here that you may use; the command aliases lists yours", label)
	case err != nil:
		return nil, relay.AsError(err)
	}
	return a, nil
}

// onlyAlias is the one alias that an account owns, or, owning none, the one that
// it may use.
func onlyAlias(who relay.Actor, aliases []relay.Alias) (relay.Alias, bool) {
	var own []relay.Alias
	for _, a := range aliases {
		if a.Owner == who.Account {
			own = append(own, a)
		}
	}
	if len(own) == 0 {
		own = aliases
	}
	if len(own) != 1 {
		return relay.Alias{}, false
	}
	return own[0], true
}
