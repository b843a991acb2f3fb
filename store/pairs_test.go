package store_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/store"
	"relay/store/schematest"
	"relay/store/seal"
)

// people holds the accounts and aliases of one case in pairs. alice owns the alias hooks, of which bob is a member;
// bob owns the alias spare, and carol the alias full. Each account may have two aliases. All names begin with
// the prefix of the case.
type people struct {
	*testing.T
	*store.Store
	db                *sql.DB
	prefix            string
	alice, bob, carol relay.Actor
	event, waits      relay.ID
	share, once       relay.Share
	onceSecret        string
	key, invite       string
	enrolls           string
	secret            relay.SenderSecret
	token             relay.Token
}

func (p *people) name(n string) string { return p.prefix + n }

func (p *people) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func publicKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(key))
}

func newPeople(t *testing.T, s *store.Store, db *sql.DB, prefix string) *people {
	t.Helper()
	p, ctx := &people{T: t, Store: s, db: db, prefix: prefix, key: publicKey(t), enrolls: publicKey(t)}, t.Context()
	for name, who := range map[string]*relay.Actor{"alice": &p.alice, "bob": &p.bob, "carol": &p.carol} {
		a, err := s.CreateAccount(ctx, system, p.name(name), false)
		p.must(err)
		*who = person(a.ID, a.Name)
	}
	for alias, owner := range map[string]relay.Actor{"hooks": p.alice, "spare": p.bob, "full": p.carol} {
		_, err := s.CreateAlias(ctx, owner, p.name(alias), "")
		p.must(err)
	}
	p.must(s.AddMember(ctx, p.alice, p.name("hooks"), p.bob.AccountName))
	hooks, err := s.Alias(ctx, p.alice, p.name("hooks"))
	p.must(err)
	p.event = stored(t, s, eventAt(s, hooks.ID, time.Now(), relay.StateDelivering, "x"))
	p.waits = stored(t, s, eventAt(s, hooks.ID, time.Now(), relay.StateQueued, "x"))
	p.share, _, err = s.CreateShare(ctx, p.alice, p.event, relay.Share{View: true})
	p.must(err)
	p.secret, err = s.AddSecret(ctx, p.alice, p.name("hooks"), relay.SenderSecret{Provider: "stripe"}, relay.NewSecretText("whsec_first"))
	p.must(err)
	p.token, _, err = s.CreateToken(ctx, p.bob, relay.Token{Scopes: relay.AllScopes, ExpiresAt: time.Now().Add(time.Hour)})
	p.must(err)
	return p
}

func person(id int64, name string) relay.Actor {
	return relay.Actor{Account: id, AccountName: name, Name: name, Kind: relay.ActorUser, Scopes: relay.AllScopes}
}

// addOnce makes what can be used once, by a secret that is not stored.
func (p *people) addOnce(ctx context.Context) {
	p.Helper()
	var err error
	p.once, p.onceSecret, err = p.CreateShare(ctx, p.alice, p.event, relay.Share{OneUse: true})
	p.must(err)
	p.invite, err = p.CreateInvite(ctx, relay.System(), p.bob.AccountName, 0)
	p.must(err)
}

// operation changes the accounts or aliases of a case and returns the text of its result.
type operation struct {
	name string
	do   func(ctx context.Context, p *people) (string, error)
}

func op(name string, do func(context.Context, *people) error) operation {
	return operation{name, func(ctx context.Context, p *people) (string, error) { return "", do(ctx, p) }}
}

func set(name string, edit func(*relay.Settings)) operation {
	return op("set "+name, func(ctx context.Context, p *people) error {
		_, err := p.SetAlias(ctx, p.alice, p.name("hooks"), func(s *relay.Settings) error { edit(s); return nil })
		return err
	})
}

func transferTo(user string) operation {
	return op("transfer to "+user, func(ctx context.Context, p *people) error {
		_, err := p.TransferAlias(ctx, p.alice, p.name("hooks"), p.name(user))
		return err
	})
}

func create(user func(*people) relay.Actor, alias string) operation {
	return op("create "+alias, func(ctx context.Context, p *people) error {
		_, err := p.CreateAlias(ctx, user(p), p.name(alias), "")
		return err
	})
}

func claim(user func(*people) relay.Actor, alias string) operation {
	return op("claim "+alias, func(ctx context.Context, p *people) error {
		_, err := p.ClaimAlias(ctx, user(p), p.name(alias))
		return err
	})
}

func token(user func(*people) relay.Actor, alias string) operation {
	return op("token for "+alias, func(ctx context.Context, p *people) error {
		t := relay.Token{Scopes: relay.ScopeEventsRead}
		if alias != "" {
			t.Alias = p.name(alias)
		}
		_, _, err := p.CreateToken(ctx, user(p), t)
		return err
	})
}

func search(user func(*people) relay.Actor, name string) operation {
	return op("search "+name, func(ctx context.Context, p *people) error {
		return p.SaveSearch(ctx, user(p), p.name("hooks"), relay.SavedSearch{Name: name, Words: "status:5xx"})
	})
}

func removeAccount(user string) operation {
	return op("remove account "+user, func(ctx context.Context, p *people) error { return p.RemoveAccount(ctx, system, p.name(user)) })
}

func mark(label string, id func(*people) relay.ID, change func(*relay.Mark)) operation {
	return op("mark "+label, func(ctx context.Context, p *people) error { return p.MarkEvent(ctx, p.alice, id(p), change) })
}

func alice(p *people) relay.Actor { return p.alice }
func bob(p *people) relay.Actor   { return p.bob }
func carol(p *people) relay.Actor { return p.carol }
func event(p *people) relay.ID    { return p.event }
func waits(p *people) relay.ID    { return p.waits }

var (
	setPaused = set("paused", func(s *relay.Settings) { s.Paused = true })
	setAuto   = set("autoDeliver", func(s *relay.Settings) { s.AutoDeliver = true })
	unset     = set("hostHeader", func(s *relay.Settings) { s.HostHeader = relay.HostRewrite })
	pin       = mark("pinned", event, func(m *relay.Mark) { m.Pinned = true })
	label     = mark("label", event, func(m *relay.Mark) { m.Label = "july" })
	markWaits = mark("another event", waits, func(m *relay.Mark) { m.Pinned = true })

	removeAlias = op("remove alias", func(ctx context.Context, p *people) error { return p.RemoveAlias(ctx, p.alice, p.name("hooks")) })
	createShare = op("create share", func(ctx context.Context, p *people) error {
		_, _, err := p.CreateShare(ctx, p.alice, p.event, relay.Share{View: true})
		return err
	})
	operatorShare = op("share by the operator", func(ctx context.Context, p *people) error {
		_, _, err := p.CreateShare(ctx, relay.System(), p.event, relay.Share{View: true})
		return err
	})
	removeShare = op("remove share", func(ctx context.Context, p *people) error { return p.RemoveShare(ctx, p.alice, p.event, p.share.ID) })
	useShare    = op("use share", func(ctx context.Context, p *people) error {
		_, _, err := p.ShareActor(ctx, p.onceSecret, true)
		return err
	})
	addMember = op("add member", func(ctx context.Context, p *people) error {
		return p.AddMember(ctx, p.alice, p.name("hooks"), p.name("carol"))
	})
	removeMember = op("remove member", func(ctx context.Context, p *people) error {
		return p.RemoveMember(ctx, p.alice, p.name("hooks"), p.name("bob"))
	})
	addKey = op("add key", func(ctx context.Context, p *people) error {
		_, err := p.AddKey(ctx, p.bob, "", "laptop", p.key)
		return err
	})
	enrol = op("add enrolment", func(ctx context.Context, p *people) error {
		_, _, err := p.AddEnrolment(ctx, relay.Enrolment{AuthorizedKey: p.enrolls, Remote: p.prefix, ExpiresAt: time.Now().Add(time.Hour)})
		return err
	})
	useInvite = op("use invite", func(ctx context.Context, p *people) error {
		_, _, err := p.UseInvite(ctx, p.invite, p.key, "", "")
		return err
	})
	loginLink = op("login link", func(ctx context.Context, p *people) error { _, err := p.CreateLoginLink(ctx, p.bob, "", 0); return err })
	release   = operation{"release", func(ctx context.Context, p *people) (string, error) {
		n, err := p.Release(ctx, p.alice, p.name("hooks"))
		return fmt.Sprint(n), err
	}}
	cancel      = op("cancel", func(ctx context.Context, p *people) error { return p.Cancel(ctx, p.alice, p.waits) })
	deleteEvent = op("delete event", func(ctx context.Context, p *people) error { return p.DeleteEvent(ctx, p.alice, p.event) })
	deleteWaits = op("delete queued", func(ctx context.Context, p *people) error { return p.DeleteEvent(ctx, p.alice, p.waits) })
	replay      = operation{"replay", func(ctx context.Context, p *people) (string, error) {
		c, err := p.BeginReplay(ctx, p.bob, p.event, false)
		if err != nil {
			return "", err
		}
		return "", func() error { _ = c.N; return nil }()
	}}
	addSecret = op("add secret", func(ctx context.Context, p *people) error {
		_, err := p.AddSecret(ctx, p.alice, p.name("hooks"), relay.SenderSecret{Provider: "stripe"}, relay.NewSecretText("whsec_second"))
		return err
	})
	removeSecret = op("remove secret", func(ctx context.Context, p *people) error {
		return p.RemoveSecret(ctx, p.alice, p.name("hooks"), p.secret.ID)
	})
	setToken   = set("verifyToken", func(s *relay.Settings) { token := relay.NewSecretText("token"); s.VerifyToken = &token })
	renewToken = op("renew token", func(ctx context.Context, p *people) error {
		who := p.bob
		who.Kind, who.Credential = relay.ActorToken, p.token.ID
		_, err := p.RenewToken(ctx, who)
		return err
	})
	removeToken = op("remove token", func(ctx context.Context, p *people) error { return p.RemoveToken(ctx, p.bob, p.token.ID) })
	newAccount  = op("new account", func(ctx context.Context, p *people) error {
		_, err := p.CreateAccount(ctx, system, p.name("dave"), false)
		return err
	})
	keyed = operation{"keyed call", func(ctx context.Context, p *people) (string, error) {
		status, _, err := p.BeginIdempotent(ctx, relay.Actor{Credential: p.prefix}, "key", "target")
		return fmt.Sprint(status), err
	}}
)

func limitAccount(key string) operation {
	return op("limit "+key, func(ctx context.Context, p *people) error {
		limit := int64(7)
		_, err := p.SetAccount(ctx, system, p.name("bob"), map[string]*int64{key: &limit})
		return err
	})
}

// almostSecret adds secrets to the alias hooks until only one more is allowed.
func almostSecret(p *people) {
	p.fill(`INSERT INTO sender_secrets (id, alias_id, owner_id, provider, custom, path, sign, key_id, sealed, created_at, created_by)
		SELECT $1 || '-' || n, id, owner_id, 'github', '', '', 0, '', '', n, '' FROM aliases, generate_series(1, 18) n WHERE name = $1`)
}

// almostMarked adds marks to the alias hooks until only one more is allowed. almostSearched does the same with
// the saved searches of bob for hooks.
func almostMarked(p *people) {
	p.fill(`INSERT INTO event_marks (alias_id, event_id, pinned, label, note) SELECT al.id, gen_random_uuid(), 0, 'x', '' FROM aliases al, generate_series(1, 999) WHERE al.name = $1`)
}

func almostSearched(p *people) {
	p.fill(`INSERT INTO saved_searches (alias_id, account_id, name, words) SELECT al.id, m.account_id, 'old ' || n, 'x' FROM aliases al JOIN members m ON m.alias_id = al.id, generate_series(1, 49) n WHERE al.name = $1`)
}

func (p *people) fill(statement string) {
	p.Helper()
	_, err := p.db.Exec(statement, p.name("hooks"))
	p.must(err)
}

// pairs are pairs of operations on the same rows.
var pairs = []struct {
	a, b    operation
	prepare func(*people)
	twice   bool // both are the same operation of one account, so their order does not matter
}{
	{a: setPaused, b: setAuto},
	{a: setPaused, b: unset},
	{a: setPaused, b: transferTo("bob")},
	{a: setPaused, b: removeAlias},
	{a: setPaused, b: removeAccount("alice")},
	{a: transferTo("bob"), b: transferTo("carol")},
	{a: transferTo("carol"), b: create(carol, "new")},
	{a: transferTo("bob"), b: removeAccount("bob")},
	{a: transferTo("bob"), b: removeAlias},
	{a: transferTo("bob"), b: removeMember},
	{a: create(carol, "one"), b: create(carol, "two")},
	{a: create(carol, "one"), b: claim(carol, "two")},
	{a: create(carol, "hooks"), b: removeAlias},
	{a: claim(carol, "hooks"), b: removeAlias},
	{a: claim(carol, "same"), b: claim(carol, "same"), twice: true},
	{a: claim(carol, "same"), b: claim(bob, "same")},
	{a: create(alice, "new"), b: removeAccount("alice")},
	{a: claim(alice, "new"), b: removeAccount("alice")},
	{a: removeAlias, b: removeAlias, twice: true},
	{a: createShare, b: transferTo("bob")},
	{a: operatorShare, b: transferTo("bob")},
	{a: createShare, b: removeAlias},
	{a: createShare, b: removeAccount("alice")},
	{a: createShare, b: deleteEvent},
	{a: removeShare, b: removeShare, twice: true},
	{a: removeShare, b: transferTo("bob")},
	{a: useShare, b: useShare, twice: true},
	{a: useShare, b: transferTo("bob")},
	{a: token(bob, "hooks"), b: removeMember},
	{a: token(bob, "hooks"), b: removeAlias},
	{a: token(alice, "hooks"), b: transferTo("bob")},
	{a: token(alice, ""), b: removeAccount("alice")},
	{a: addKey, b: removeAccount("bob")},
	{a: addKey, b: addKey, twice: true},
	{a: addMember, b: addMember, twice: true},
	{a: addMember, b: transferTo("carol")},
	{a: addMember, b: removeAccount("carol")},
	{a: addMember, b: removeAlias},
	{a: removeMember, b: removeMember, twice: true},
	{a: search(bob, "same"), b: search(bob, "same"), twice: true},
	{a: search(bob, "one"), b: search(bob, "two"), prepare: almostSearched},
	{a: search(bob, "one"), b: removeMember},
	{a: search(alice, "one"), b: transferTo("bob")},
	{a: search(alice, "one"), b: removeAlias},
	{a: pin, b: label},
	{a: pin, b: markWaits, prepare: almostMarked},
	{a: pin, b: transferTo("bob")},
	{a: pin, b: deleteEvent},
	{a: deleteEvent, b: deleteEvent, twice: true},
	{a: deleteEvent, b: transferTo("bob")},
	{a: deleteEvent, b: replay},
	{a: enrol, b: enrol, twice: true},
	{a: useInvite, b: useInvite, twice: true},
	{a: useInvite, b: removeAccount("bob")},
	{a: useInvite, b: addKey},
	{a: loginLink, b: removeAccount("bob")},
	{a: release, b: release, twice: true},
	{a: release, b: cancel},
	{a: cancel, b: cancel, twice: true},
	{a: cancel, b: deleteWaits},
	{a: newAccount, b: newAccount, twice: true},
	{a: removeAccount("bob"), b: removeAccount("bob"), twice: true},
	{a: keyed, b: keyed, twice: true},
	{a: addSecret, b: addSecret, prepare: almostSecret, twice: true},
	{a: addSecret, b: removeSecret, prepare: almostSecret},
	{a: addSecret, b: transferTo("bob")},
	{a: addSecret, b: removeAlias},
	{a: removeSecret, b: removeSecret, twice: true},
	{a: removeSecret, b: transferTo("bob")},
	{a: setToken, b: setToken, twice: true},
	{a: setToken, b: setPaused},
	{a: setToken, b: transferTo("bob")},
	{a: limitAccount("maxAccountStorage"), b: limitAccount("maxAccountQueue")},
	{a: limitAccount("maxAccountStorage"), b: removeAccount("bob")},
	{a: renewToken, b: removeToken},
	{a: renewToken, b: removeAccount("bob")},
}

// Two operations whose transactions overlap have the same result as if they had run one after the other. The
// stored rows, the audit log and the two results must be those of one of the two orders.
func TestOperationsAtOnce(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: schematest.URL(t) + "&application_name=pairs", DataDir: t.TempDir(), AliasClaim: true, MaxAliases: 2, SecretKeys: []seal.Key{seal.NewKey()}}
	s := mustServe(t, o)
	db := database(t, o)
	gate := newGate(t, db)
	model := newPeople(t, s, db, "model-")
	copied := model.another(t, "copied-")
	model.addOnce(t.Context())
	if d := cmp.Diff(model.rows(), copied.rows()); d != "" {
		t.Fatal("a copy differs from its model:", d)
	}
	for n, c := range pairs {
		t.Run(c.a.name+" and "+c.b.name, func(t *testing.T) {
			world := func(variant string) *people {
				p := model.another(t, fmt.Sprintf("p%d%s-", n, variant))
				if c.prepare != nil {
					c.prepare(p)
				}
				return p
			}
			var orders []string
			starts := 2 // number of runs; in the second run, operation b begins before a
			if c.twice {
				p := world("a")
				one, two := p.tell(c.a), p.tell(c.b)
				orders, starts = []string{p.state([2]string{one, two}), p.state([2]string{two, one})}, 1
			} else {
				orders = []string{world("a").serially(c.a, c.b, false), world("b").serially(c.b, c.a, true)}
			}
			for i := range starts {
				first, second := c.a, c.b
				if i == 1 {
					first, second = second, first
				}
				got := ""
				for try := 0; got == "" && try < 5; try++ { // on a busy machine an operation may take longer than the lock timeout
					got = gate.together(world(fmt.Sprintf("%c%d", 'c'+i, try)), first, second, i == 1)
				}
				if !slices.Contains(orders, got) {
					t.Errorf("%s first: differs from both orders:\n%s\nand\n%s", first.name, cmp.Diff(orders[0], got), cmp.Diff(orders[1], got))
				}
			}
		})
	}
}

// gate holds transactions at their commit.
type gate struct {
	*testing.T
	db   *sql.DB
	conn *sql.Conn
}

const gateKey = 4711

func newGate(t *testing.T, db *sql.DB) *gate {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	statements := []string{copyPeople, fmt.Sprintf(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_advisory_xact_lock_shared(%d, hashtext(current_schema())); RETURN NULL; END $$`, gateKey)}
	for _, table := range []string{
		"audit", "saved_searches", "enrolments", "idempotency", "shares", "queue", "sender_secrets", "members", "tokens", "keys", "links", "aliases", "accounts",
	} {
		statements = append(statements, `CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE OR DELETE ON `+table+
			` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold()`)
	}
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return &gate{t, db, conn}
}

// together holds the first operation before its commit until the second one waits too, either for a lock of the
// first one or before its own commit. It returns the state of the case after both have ended, or "" if an
// operation gave up waiting for a lock.
func (g *gate) together(p *people, first, second operation, swapped bool) string {
	g.Helper()
	var told [2]string
	ended := make(chan struct{}, 2)
	run := func(i int, o operation) {
		go func() {
			told[i] = p.tell(o)
			ended <- struct{}{}
		}()
	}
	if _, err := g.conn.ExecContext(g.Context(), `SELECT pg_advisory_lock($1, hashtext(current_schema()))`, gateKey); err != nil {
		g.Fatal(err)
	}
	run(0, first)
	n := g.waiting(1, ended, 0)
	run(1, second)
	n = g.waiting(2, ended, n)
	if _, err := g.conn.ExecContext(g.Context(), `SELECT pg_advisory_unlock($1, hashtext(current_schema()))`, gateKey); err != nil {
		g.Fatal(err)
	}
	for ; n < 2; n++ {
		<-ended
	}
	if strings.Contains(told[0]+told[1], relay.CodeStoreUnavailable) {
		return ""
	}
	if swapped {
		told[0], told[1] = told[1], told[0]
	}
	return p.state(told)
}

// waiting polls until the number of operations that wait for a lock or have ended is at least want. n is the
// number of operations that ended before the call; the result is the number of those that have ended by now.
func (g *gate) waiting(want int, ended chan struct{}, n int) int {
	g.Helper()
	for {
		select {
		case <-ended:
			n++
		default:
		}
		var blocked int
		if err := g.db.QueryRow(`SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'pairs' AND wait_event_type = 'Lock'
			AND state = 'active' AND pid <> pg_backend_pid()`).Scan(&blocked); err != nil {
			g.Fatal(err)
		}
		if blocked+n >= want {
			return n
		}
		time.Sleep(time.Millisecond) // this loop leaves the processor to the operations
	}
}

func (p *people) tell(o operation) string {
	answer, err := o.do(p.Context(), p)
	if err == nil {
		return "ok " + answer
	}
	return relay.AsError(err).Code
}

func (p *people) serially(first, second operation, swapped bool) string {
	told := [2]string{p.tell(first), p.tell(second)}
	if swapped {
		told[0], told[1] = told[1], told[0]
	}
	return p.state(told)
}

var randomNames = regexp.MustCompile(`(shr|tok|key|ses|evt|sec)_[0-9a-zA-Z_-]+|SHA256:[^ ]+`)

// state returns the stored rows of a case, without random values and times, and the results of its two
// operations (told) as text.
func (p *people) state(told [2]string) string {
	p.Helper()
	list := []string{}
	for _, query := range []string{
		`SELECT 'account ' || name || ' removed ' || (removed_at > 0) || ' limits ' || COALESCE(max_storage, 0) || ' ' || COALESCE(max_queue, 0) FROM accounts WHERE name LIKE $1`,
		`SELECT 'alias ' || al.name || ' of ' || o.name || ' auto ' || auto_deliver || ' paused ' || paused || ' host ' || host_header
			FROM aliases al JOIN accounts o ON o.id = al.owner_id WHERE al.name LIKE $1`,
		`SELECT 'member ' || o.name || ' of ' || al.name FROM members m JOIN aliases al ON al.id = m.alias_id JOIN accounts o ON o.id = m.account_id WHERE al.name LIKE $1`,
		`SELECT 'secret ' || x.provider || ' of ' || al.name || ' ' || (x.owner_id = al.owner_id) FROM sender_secrets x JOIN aliases al ON al.id = x.alias_id WHERE al.name LIKE $1`,
		`SELECT 'token of ' || o.name || ' for ' || COALESCE(al.name, '') FROM tokens t JOIN accounts o ON o.id = t.account_id LEFT JOIN aliases al ON al.id = t.alias_id WHERE o.name LIKE $1`,
		`SELECT 'share of ' || o.name || ' uses ' || uses FROM shares sh JOIN accounts o ON o.id = sh.account_id WHERE o.name LIKE $1`,
		`SELECT 'key of ' || o.name FROM keys k JOIN accounts o ON o.id = k.account_id WHERE o.name LIKE $1`,
		`SELECT 'link of ' || o.name || ' ' || kind FROM links k JOIN accounts o ON o.id = k.account_id WHERE o.name LIKE $1`,
		`SELECT 'search of ' || o.name || ' ' || s.name FROM saved_searches s JOIN accounts o ON o.id = s.account_id WHERE o.name LIKE $1`,
		`SELECT 'mark ' || pinned || label FROM event_marks m JOIN aliases al ON al.id = m.alias_id WHERE al.name LIKE $1`,
		`SELECT 'kept ' || name FROM kept_names WHERE name LIKE $1`,
		`SELECT 'enrolment ' || ended FROM enrolments WHERE remote || '%' = $1`,
		`SELECT 'event attempts ' || e.attempts || ' state ' || e.state FROM events e JOIN aliases al ON al.id = e.alias_id WHERE al.name LIKE $1`,
		`SELECT 'queue released ' || released FROM queue q JOIN aliases al ON al.id = q.alias_id WHERE al.name LIKE $1`,
		`SELECT 'call ' || status FROM idempotency WHERE credential || '%' = $1`,
		`SELECT 'audit ' || a.actor || ' ' || a.action || ' ' || a.target || ' ' || a.detail || ' about ' || o.name
			FROM audit a JOIN accounts o ON o.id = a.subject_id WHERE o.name LIKE $1`,
	} {
		rows, err := p.db.Query(query, p.prefix+"%")
		p.must(err)
		for rows.Next() {
			var line string
			p.must(rows.Scan(&line))
			list = append(list, randomNames.ReplaceAllString(strings.ReplaceAll(line, p.prefix, ""), "$1"))
		}
		p.must(rows.Err())
		p.must(rows.Close())
	}
	slices.Sort(list)
	return fmt.Sprintf("told %q\n%s", told, strings.Join(list, "\n"))
}
