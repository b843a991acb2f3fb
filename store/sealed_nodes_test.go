package store

import (
	"errors"
	"testing"
	"time"

	"relay"
	"relay/record"
	"relay/store/schematest"
	"relay/store/seal"
)

// Of four nodes, one has no key and one has another key. These two cannot decrypt the secret: their verdict on a
// signature is secret-sealed, and they cannot sign. They do not change the secret, so the other nodes can still
// decrypt it.
func TestANodeWithoutTheKey(t *testing.T) {
	t.Parallel()
	key, other := seal.NewKey(), seal.NewKey()
	url := schematest.URL(t)
	var nodes []*Store
	for _, keys := range [][]seal.Key{{key}, {key}, nil, {other}} {
		c := newTestCluster(t, 1, Options{URL: url, SecretKeys: keys})
		if len(nodes) == 0 {
			c.withAlias()
		}
		nodes = append(nodes, c.nodes[0])
	}
	ctx, system := t.Context(), relay.System()
	add := func(s *Store, value string) error {
		_, err := s.AddSecret(ctx, system, "hooks", relay.SenderSecret{Provider: "github", Sign: true}, relay.NewSecretText(value))
		return err
	}
	if err := add(nodes[0], "the value"); err != nil {
		t.Fatal(err)
	}
	alias := nodes[0].aliasOf(t)
	event := &relay.Event{
		Provider: relay.Provider{Name: "github"}, ReceivedAt: time.Now(), Method: "POST", Target: []byte("/"),
		Request: relay.Message{
			Head: []byte("POST / HTTP/1.1\r\nHost: h\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=0000000000000000000000000000000000000000000000000000000000000000\r\n\r\n"),
			Body: relay.Body{State: relay.BodyComplete, Data: []byte("x"), Size: 1},
		},
	}
	for i, opens := range []bool{true, true, false, false} {
		s := nodes[i]
		list, err := s.OpenSecrets(ctx, alias)
		if err != nil || len(list) != 1 || list[0].Sealed == opens || opens && list[0].Value.Reveal() != "the value" {
			t.Errorf("node %d opens %+v, %v", i, list, err)
		}
		want := map[bool]string{true: "wrong-secret", false: "secret-sealed"}[opens]
		if verdict := record.JudgeEvent(event, relay.Site{}, list); verdict == nil || verdict.Reason != want {
			t.Errorf("node %d judges %+v, want %s", i, verdict, want)
		}
		_, err = s.SigningSecret(ctx, alias, "github", "/", "", func(string) bool { return true })
		if opens != (err == nil) || !opens && relay.AsError(err).Code != relay.CodeSecretUnavailable {
			t.Errorf("node %d signs: %v", i, err)
		}
	}
	if err := add(nodes[2], "lost"); relay.AsError(err).Code != relay.CodeSecretUnavailable {
		t.Errorf("a node without a key has sealed: %v", err)
	}
	for i, want := range map[int][2]int{2: {0, 1}, 3: {0, 1}, 1: {1, 0}} {
		sealed, left, err := nodes[i].ResealSecrets(ctx, system)
		if got := [2]int{sealed, left}; got != want || err != nil {
			t.Errorf("node %d sealed again %v, want %v, %v", i, got, want, err)
		}
	}
	if list, err := nodes[0].OpenSecrets(ctx, alias); err != nil || len(list) != 1 || list[0].Sealed {
		t.Errorf("the first node opens %+v afterwards, %v", list, err)
	}
	if _, err := nodes[2].SecretKeys().Keys(); err != nil {
		t.Error(err)
	}
	if err := nodes[2].SecretKeys().Rotate(); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("a node without a key has rotated: %v", err)
	}
}

// When a node of the previous version transfers an alias, it leaves the secrets of the old owner behind. These
// secrets are deleted, and doctor asks for no key for them.
func TestSecretsThatATransferLeft(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			o := Options{DataDir: t.TempDir(), SecretKeys: []seal.Key{seal.NewKey()}}
			if engine == "postgres" {
				o.URL = schematest.URL(t)
			}
			s := openMigrated(t, o)
			c := (&testCluster{T: t, nodes: []*Store{s}}).withAlias()
			ctx, system := t.Context(), relay.System()
			for _, alias := range []string{"hooks", "kept"} {
				if alias == "kept" {
					c.another(alias)
				}
				if _, err := s.AddSecret(ctx, system, alias, relay.SenderSecret{Provider: "github"}, relay.NewSecretText("value")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.CreateAccount(ctx, system, "bob", false); err != nil {
				t.Fatal(err)
			}
			c.exec(`UPDATE aliases SET owner_id = (SELECT id FROM accounts WHERE name = 'bob') WHERE name = 'hooks'`)
			used, err := s.SecretKeyUse(ctx)
			if n := used[o.SecretKeys[0].ID()]; n != 1 || len(used) != 1 || err != nil {
				t.Errorf("used %v, %v", used, err)
			}
			if err := s.DropExpired(ctx, time.Now()); err != nil {
				t.Fatal(err)
			}
			if n := c.count(`SELECT COUNT(*) FROM sender_secrets`); n != 1 {
				t.Errorf("%d rows are left, want that of the alias that was not transferred", n)
			}
		})
	}
}
