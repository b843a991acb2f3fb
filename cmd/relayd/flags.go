package main

import (
	"context"
	"net/netip"
	"time"

	"relay"
)

// sshFlags is what the pages put into the ssh commands of an account, "" for a
// stranger's: the identity to offer, where that is not one that ssh finds by itself.
// Only for pages that are seen on this machine: its files are nobody else's matter.
func (a *app) sshFlags(user string) string {
	if !a.site.Loopback || !loopbackName(a.site.Base.Hostname()) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	self := newSelf(a, nil)
	if user == "" {
		accounts, err := a.store.Accounts(ctx, relay.System())
		if err != nil {
			return ""
		}
		user = likelyAdmin(accounts, self.account())
	}
	keys, err := a.store.Keys(ctx, relay.System(), user)
	if user == "" || err != nil {
		return ""
	}
	registered := map[string]bool{}
	for _, k := range keys {
		registered[k.Fingerprint] = true
	}
	if identity := self.identity(registered); identity != "" {
		return "-i " + quote(identity) + " -o IdentitiesOnly=yes"
	}
	return ""
}

func loopbackName(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
