package dashboard_test

import (
	"context"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

func TestAdminPagesAreForAdmins(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	for _, path := range []string{"/admin", "/admin/audit"} {
		o.get("alice", path).want(403, "only an admin").lacks("bob")
		o.get("", path).want(401)
		o.get("root", path).want(200)
	}
	for _, path := range []string{"/admin/users", "/admin/users/bob/invite", "/admin/users/bob/remove", "/admin/aliases/shop/transfer"} {
		o.post("alice", path, "name", "carol", "user", "alice").want(403).lacks("/invite/")
	}
	o.get("alice", "/account").want(200).lacks(`href="/admin"`)
	o.get("root", "/account").want(200, `href="/admin"`, ">admin</span>")
}

func TestUsers(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	for name, text := range map[string]string{"": "an account name is", "No Name": "an account name is", "bob": "an account bob already", "<b>": "&lt;b&gt;"} {
		o.post("root", "/admin/users", "name", name).want(422, text, "user-name-wrong")
	}
	o.post("root", "/admin/users", "name", " carol ", "admin", "on").redirectsTo("/admin?done=user-added")
	if a, err := o.AccountByName(t.Context(), "carol"); err != nil || !a.Admin {
		t.Errorf("carol is %+v, %v", a, err)
	}
	o.post("root", "/admin/users", "name", "dave").redirectsTo("/admin?done=user-added")
	o.get("root", "/admin?done=user-added").want(200, "The account was created.", `data-user="carol"`, `data-label="Stored">0 bytes<`, `data-label="Queued">0<`, "Its aliases and their events are kept")
	o.post("root", "/admin/users/nobody/invite").want(404)
	o.post("root", "/admin/users/nobody/remove").want(404)
	o.post("root", "/admin/users/root/remove").want(409, "your own account")

	o.alias("bob", "shop")
	o.post("root", "/admin/users/bob/remove").redirectsTo("/admin?done=user-removed")
	o.get("bob", "/account").want(401)
	o.get("root", "/admin").want(200, "Aliases of removed accounts", "shop", "owned by bob (removed)").lacks(`data-user="bob"`)
	o.post("root", "/admin/aliases/shop/transfer", "user", "nobody").want(422, "there is no such account", `value="nobody"`, "of-shop-user-wrong")
	o.post("root", "/admin/aliases/none/transfer", "user", "alice").want(404)
	o.post("root", "/admin/aliases/shop/transfer", "user", "alice").redirectsTo("/admin?done=transferred")
	o.get("alice", "/aliases/shop/settings").want(200, "Save settings")
	o.post("root", "/admin/aliases/shop/transfer", "user", "root").want(404)
	o.get("root", "/admin").lacks("Aliases of removed accounts")
}

func TestAuditLog(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	_, err := o.AddKey(t.Context(), o.actor("alice"), "", "", o.publicKey()+" \u202e<img src=x>")
	o.must(err)
	o.get("root", "/admin/audit").want(200, "user:alice", "key.add", `\u202e&lt;img src=x&gt;`, "session.add").lacks("Show more", "<img")
	for range 100 {
		_, err := o.CreateLoginLink(t.Context(), relay.System(), "alice", 0)
		o.must(err)
	}
	o.get("root", "/admin/audit").want(200, "Show more").lacks("key.add")
	o.get("root", "/admin/audit?all").want(200, "key.add").lacks("Show more")
}

func TestAuditLogIsFiltered(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	o.alias("alice", "shop")
	o.alias("bob", "secret-of-bob")
	o.post("alice", "/account/keys", "name", "laptop", "key", o.publicKey()).redirectsTo("/account?done=key-added")
	o.get("root", "/admin/audit?what=alias").want(200, "alias.add", "shop", "secret-of-bob").lacks("<code>key.add")
	o.get("root", "/admin/audit?what=alias&who=BOB").want(200, "secret-of-bob", `value="BOB"`).lacks(">shop<")
	o.get("root", "/admin/audit?on=shop").want(200, "alias.add").lacks("secret-of-bob")
	o.get("root", "/admin/audit?on=%3Cscript%3E").want(200, "None of the newest", "&lt;script&gt;", "Clear")
	o.get("alice", "/account/audit").want(200, "alias.add", "key.add", "laptop").lacks("secret-of-bob", "user:bob")
	o.get("root", "/account/audit").want(200).lacks("secret-of-bob", "shop")
	o.get("alice", "/account/audit?what=key").want(200, "key.add").lacks("<code>alias.add")
	o.get("alice", "/account/audit?what=key.add").want(200, `<option value="key.add" selected`, "laptop").lacks("<code>alias.add")
	o.get("", "/account/audit").want(401)
}

// nodesOf is a store whose nodes the test sets.
type nodesOf struct {
	accountsPort
	nodes []relay.Node
}

func (n nodesOf) Nodes(context.Context) ([]relay.Node, error) { return n.nodes, nil }

func TestAdminPageShowsNodes(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	nodes, err := o.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes: %+v, %v", nodes, err)
	}
	o.get("root", "/admin").want(200, `data-node="`+nodes[0].Name+`"`, "this page", relay.NodeServing, "docs/cluster.md")

	o = newAccountFixture(t, func(opt *dashboard.Options) {
		opt.Accounts = nodesOf{opt.Accounts, []relay.Node{
			{Name: "relay-1", State: relay.NodeServing, Version: "1.2.0", Tunnels: 7311, Self: true, LastSeenAt: time.Now()},
			{Name: "<i>relay-2", State: relay.NodeUnreachable, Version: "1.1.9", UnreachableFrom: []string{"relay-1", "relay-3"}},
		}}
	})
	o.get("root", "/admin").want(200, `data-node="relay-1"`, "1.2.0", "7311", "&lt;i&gt;relay-2", "1.1.9", "unreachable", "from relay-1, relay-3", "never").
		lacks("<i>relay-2")
}
