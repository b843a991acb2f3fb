package storetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
)

// reading and unaudited list the operations with an actor that add nothing to the audit log: they only read,
// or change nothing that other accounts could use.
var (
	reading = []string{
		"AccountUsage", "Accounts", "Alias", "AliasHealth", "Aliases", "AllShares", "Attempts", "Audit", "Choices", "CountEvents", "Event", "Events",
		"Figures", "KeptName", "Keys", "Matches", "Members", "OpenSecret", "Request", "SavedSearches", "SecretAlias", "Secrets", "Sessions", "Shares", "SigningSecret", "StillValid",
		"Tokens", "Tunnels", "UnownedAliases", "Usage",
	}
	unaudited = []string{
		"BeginIdempotent", "EndIdempotent", // they only store the response of a call
		"SaveSearch",                        // only the account of the search sees its words
		"StoreSignature", "StoreSignatures", // a verdict can be computed again at any time
	}
)

// act is an operation that adds to the audit log.
type act struct {
	method string
	do     func(*store.Store) error
}

// testActs checks that every operation that changes the rights of an account is in the audit log. The log of
// the server must contain each entry once, including the entries of a command that runs at the same time.
func testActs(t *testing.T, fresh func(testing.TB) store.Options) {
	t.Run("every operation is known", func(t *testing.T) {
		b := &actFixture{fixture: setup(t, fresh)}
		known := append(slices.Clone(reading), unaudited...)
		for _, a := range b.acts() {
			known = append(known, a.method)
		}
		actor := reflect.TypeFor[relay.Actor]()
		all := reflect.TypeFor[*store.Store]()
		for i := range all.NumMethod() {
			m := all.Method(i)
			takes := false
			for k := range m.Type.NumIn() {
				takes = takes || m.Type.In(k) == actor
			}
			if takes && !slices.Contains(known, m.Name) {
				t.Errorf("%s takes an actor, and no list of this test has it", m.Name)
			}
		}
	})
	t.Run("by the server", func(t *testing.T) { actsAreLogged(t, fresh, false) })
	t.Run("by a command", func(t *testing.T) { actsAreLogged(t, fresh, true) })
	t.Run("by one of two nodes", func(t *testing.T) { actsOfTwoNodes(t, fresh) })
}

func actsAreLogged(t *testing.T, fresh func(testing.TB) store.Options, beside bool) {
	t.Helper()
	log := &actLog{}
	b := &actFixture{fixture: setup(t, fresh, func(o *store.Options) { o.Log = slog.New(slog.NewJSONHandler(log, nil)) })}
	by := b.Store
	if beside {
		by = b.command()
	}
	for _, a := range b.acts() {
		before := len(b.entries())
		if err := a.do(by); err != nil {
			t.Errorf("%s: %v", a.method, err)
			continue
		}
		b.eventually("an entry of "+a.method, func() bool { return len(b.entries()) > before })
	}
	// The server logs the entries of a command only when it reads the command's revisions, which it does
	// within a second.
	var lines, entries []string
	same := relaytest.Poll(30*time.Second, func() bool {
		lines, entries = slices.Sorted(slices.Values(log.lines())), slices.Sorted(slices.Values(b.entries()))
		return slices.Equal(lines, entries)
	})
	if !same {
		t.Errorf("the log has\n%s\nand the audit log\n%s", strings.Join(lines, "\n"), strings.Join(entries, "\n"))
	}
	for _, secret := range b.secrets {
		if strings.Contains(log.text(), secret) {
			t.Errorf("the log has a secret: %s", log.text())
		}
	}
}

// actFixture keeps the objects that the acts create.
type actFixture struct {
	*fixture
	secrets []string
}

// secret notes a secret that must not appear in any log.
func (b *actFixture) secret(text string, err error) string {
	b.Helper()
	b.must(err)
	b.secrets = append(b.secrets, text)
	return text
}

// entries lists the entries of the audit log in the form in which actLog.lines returns them.
func (b *actFixture) entries() (list []string) {
	b.Helper()
	rows, err := b.Audit(b.Context(), system, 10_000)
	b.must(err)
	for _, e := range rows {
		list = append(list, strings.Join([]string{e.Actor, e.Via, e.Action, e.Target, e.Detail}, "|"))
	}
	return list
}

// acts returns each operation with its arguments, in the order in which they run.
func (b *actFixture) acts() []act {
	list := slices.Concat(b.eventActs(), b.credentialActs(), b.secretActs(), b.aliasActs())
	if b.opt.URL != "" {
		list = append(list, act{"DrainNode", b.drain})
	} else {
		list = append(list, act{"DrainNode", func(*store.Store) error { // SQLite has one node, which cannot be drained
			b.NoteLogin(relay.Actor{Kind: relay.ActorSSH, Name: "alice", Account: b.alice.Account, Credential: "key_2"}, "192.0.2.8:1")
			return nil
		}})
	}
	return list
}

func (b *actFixture) eventActs() []act {
	ctx := b.Context()
	var share relay.Share
	event := func() relay.ID { return b.capture(b.hooks, "/act", "x", 200) }
	return []act{
		{"BeginReplay", func(s *store.Store) error { _, err := s.BeginReplay(ctx, b.alice, event(), false); return err }},
		{"Release", func(s *store.Store) error {
			b.capture(b.hooks, "/queued", "x", 0)
			_, err := s.Release(ctx, b.alice, "hooks")
			return err
		}},
		{"Cancel", func(s *store.Store) error { return s.Cancel(ctx, b.alice, b.capture(b.hooks, "/queued", "x", 0)) }},
		{"DeleteEvent", func(s *store.Store) error { return s.DeleteEvent(ctx, b.alice, event()) }},
		{"MarkEvent", func(s *store.Store) error {
			return s.MarkEvent(ctx, b.alice, event(), func(m *relay.Mark) { m.Pinned = true })
		}},
		{"CreateShare", func(s *store.Store) (err error) {
			made, secret, err := s.CreateShare(ctx, b.alice, event(), relay.Share{View: true})
			share = made
			b.secret(secret, err)
			return err
		}},
		{"RemoveShare", func(s *store.Store) error { return s.RemoveShare(ctx, system, share.Event, share.ID) }},
		{"CloseTunnel", func(s *store.Store) error {
			at := time.Now().UTC()
			_, err := b.StoreTunnels(ctx, []relay.TunnelWrite{{Op: relay.TunnelAttach, At: at, TunnelRecord: relay.TunnelRecord{
				TunnelInfo: relay.TunnelInfo{ID: "tun", Account: b.alice.Account, User: "alice", Since: at}, Alias: b.hooks.ID, State: relay.TunnelOnline,
			}}})
			b.must(err)
			return s.CloseTunnel(ctx, system, "tun")
		}},
	}
}

func (b *actFixture) credentialActs() []act {
	ctx := b.Context()
	var key relay.Key
	var token relay.Token
	var secret, session string
	login := func(s *store.Store) {
		link, err := s.CreateLoginLink(ctx, system, "alice", 0)
		session, _, err = s.UseLoginLink(ctx, b.secret(link, err), "192.0.2.7", "browser")
		b.secret(session, err)
	}
	return []act{
		{"AddKey", func(s *store.Store) (err error) {
			key, err = s.AddKey(ctx, system, "alice", "", b.ed25519())
			return err
		}},
		{"RemoveKey", func(s *store.Store) error { return s.RemoveKey(ctx, system, key.ID) }},
		{"CreateToken", func(s *store.Store) (err error) {
			token, secret, err = s.CreateToken(ctx, b.alice, relay.Token{Name: "act", ExpiresAt: time.Now().Add(time.Hour)})
			b.secret(secret, err)
			return err
		}},
		{"RenewToken", func(s *store.Store) error {
			who, err := s.TokenOwner(ctx, secret)
			b.must(err)
			_, err = s.RenewToken(ctx, who)
			return err
		}},
		{"RemoveToken", func(s *store.Store) error { return s.RemoveToken(ctx, system, token.ID) }},
		{"CreateLoginLink", func(s *store.Store) error { login(s); return nil }},
		{"RemoveSession", func(s *store.Store) error {
			who, err := s.SessionOwner(ctx, session)
			b.must(err)
			return s.RemoveSession(ctx, system, who.Credential)
		}},
		{"EndSession", func(s *store.Store) error { login(s); return s.EndSession(ctx, session) }},
		{"RemoveLink", func(s *store.Store) error {
			link, err := s.CreateInvite(ctx, system, "bob", 0)
			_, _, err = s.RemoveLink(ctx, system, b.secret(link, err))
			return err
		}},
		{"CreateInvite", func(s *store.Store) error {
			link, err := s.CreateInvite(ctx, b.root, "bob", 0)
			_, _, err = s.UseInvite(ctx, b.secret(link, err), b.ed25519(), "192.0.2.7", "browser")
			return err
		}},
		{"ApproveEnrolment", func(s *store.Store) error {
			link, code, err := b.AddEnrolment(ctx, relay.Enrolment{AuthorizedKey: b.ed25519(), RequestedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
			b.secret(code, err)
			return s.ApproveEnrolment(ctx, b.alice, b.secret(link, err), code)
		}},
		{"NoteLogin", func(*store.Store) error { // not called on the given store, because only a server has logins and tunnels
			b.NoteLogin(relay.Actor{Kind: relay.ActorSSH, Name: "alice", Account: b.alice.Account, Credential: "key_1"}, "192.0.2.8:1")
			return nil
		}},
	}
}

func (b *actFixture) secretActs() []act {
	ctx := b.Context()
	var made relay.SenderSecret
	return []act{
		{"AddSecret", func(*store.Store) (err error) { // the first AddSecret makes the key, which only a server does
			made, err = b.AddSecret(ctx, b.alice, "hooks", relay.SenderSecret{Provider: "github", Sign: true}, relay.NewSecretText(b.secret("a-value-of-a-sender", nil)))
			return err
		}},
		{"NoteSigned", func(s *store.Store) error {
			b.must(s.NoteSigned(ctx, b.alice, 1<<40, made)) // the alias is gone: no entry and no log line
			return s.NoteSigned(ctx, b.alice, b.hooks.ID, made)
		}},
		{"ResealSecrets", func(s *store.Store) error { _, _, err := s.ResealSecrets(ctx, system); return err }},
		{"RemoveSecret", func(s *store.Store) error { return s.RemoveSecret(ctx, b.alice, "hooks", made.ID) }},
	}
}

func (b *actFixture) aliasActs() []act {
	ctx := b.Context()
	limit := int64(5)
	return []act{
		{"CreateAccount", func(s *store.Store) error { _, err := s.CreateAccount(ctx, system, "carol", false); return err }},
		{"SetAccount", func(s *store.Store) error {
			_, err := s.SetAccount(ctx, system, "carol", map[string]*int64{"maxAccountQueue": &limit})
			return err
		}},
		{"CreateAlias", func(s *store.Store) error { _, err := s.CreateAlias(ctx, system, "acts", "alice"); return err }},
		{"ClaimAlias", func(s *store.Store) error { _, err := s.ClaimAlias(ctx, b.alice, "claimed"); return err }},
		{"SetAlias", func(s *store.Store) error {
			_, err := s.SetAlias(ctx, system, "acts", func(x *relay.Settings) error { x.Paused = true; return nil })
			return err
		}},
		{"AddMember", func(s *store.Store) error { return s.AddMember(ctx, b.alice, "acts", "carol") }},
		{"RemoveMember", func(s *store.Store) error { return s.RemoveMember(ctx, b.alice, "acts", "carol") }},
		{"TransferAlias", func(s *store.Store) error { _, err := s.TransferAlias(ctx, system, "acts", "carol"); return err }},
		{"RemoveAlias", func(s *store.Store) error { return s.RemoveAlias(ctx, system, "acts") }},
		{"RemoveAccount", func(s *store.Store) error { return s.RemoveAccount(ctx, system, "carol") }},
	}
}

// command opens the store as a command does that runs beside its server.
func (b *actFixture) command() *store.Store {
	b.Helper()
	o := b.opt
	o.NoCreate, o.Log = true, nil
	command, err := store.Open(b.Context(), o)
	b.must(err)
	b.Cleanup(func() { _ = command.Close() })
	return command
}

// actsOfTwoNodes checks that an act at a node is in the log of this node alone, and that an act of a command is
// in the log of each node.
func actsOfTwoNodes(t *testing.T, fresh func(testing.TB) store.Options) {
	t.Helper()
	first, second := &actLog{}, &actLog{}
	b := &actFixture{fixture: setup(t, fresh, func(o *store.Options) { o.Log = slog.New(slog.NewJSONHandler(first, nil)) })}
	if b.opt.URL == "" {
		return // SQLite has one node
	}
	b.second(slog.New(slog.NewJSONHandler(second, nil)))
	_, err := b.CreateAccount(t.Context(), system, "ofnode", false)
	b.must(err)
	_, err = b.command().CreateAccount(t.Context(), system, "ofcommand", false) // is announced after the act of the node: a log that has this act would have that one too
	b.must(err)
	for name, log := range map[string]*actLog{"first": first, "second": second} {
		b.eventually("the act of the command in the log of the "+name+" node", func() bool { return strings.Contains(log.text(), "ofcommand") })
		want := 0
		if log == first {
			want = 1
		}
		if n := strings.Count(log.text(), `"ofnode"`); n != want {
			t.Errorf("the %s node logged the act of the first one %d times, want %d", name, n, want)
		}
	}
}

// drain drains a second node.
func (b *actFixture) drain(s *store.Store) error {
	b.second(nil)
	return s.DrainNode(b.Context(), system, "second", true)
}

// second starts a second node.
func (b *actFixture) second(log *slog.Logger) {
	b.Helper()
	o := b.opt
	o.DataDir, o.NodeName, o.Log = b.TempDir(), "second", log
	second, err := store.Open(b.Context(), o)
	b.must(err)
	b.Cleanup(func() { _ = second.Close() })
	b.must(second.Serve(b.Context(), func([]relay.Change) {}))
}

// actLog keeps the log lines of a server.
type actLog struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

// Write implements io.Writer.
func (l *actLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

func (l *actLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// lines returns the entries of the audit log that the server has logged.
func (l *actLog) lines() (list []string) {
	scanner := bufio.NewScanner(strings.NewReader(l.text()))
	for scanner.Scan() {
		var line struct{ Msg, Actor, Via, Action, Target, Detail string }
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.Msg == "audit" {
			list = append(list, strings.Join([]string{line.Actor, line.Via, line.Action, line.Target, line.Detail}, "|"))
		}
	}
	return list
}
