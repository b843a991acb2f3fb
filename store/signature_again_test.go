package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"relay"
	"relay/store/seal"
)

// An event that cannot be read does not prevent the verification of others with a new secret.
func TestJudgingAgainGoesOn(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir(), SecretKeys: []seal.Key{seal.NewKey()}})
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	c := (&testCluster{T: t, nodes: []*Store{s}}).withAlias()
	mac := hmac.New(sha256.New, []byte("value"))
	mac.Write([]byte("body"))
	head := "POST / HTTP/1.1\r\nHost: h\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=" + hex.EncodeToString(mac.Sum(nil)) + "\r\n\r\n"
	var ids []relay.ID
	for range 3 {
		e := &relay.Event{
			ID: s.NewID(), AliasID: c.alias, ReceivedAt: time.Now(), State: relay.StateQueued, Method: "POST", Target: []byte("/"),
			Provider: relay.Provider{Name: "github"},
			Request:  relay.Message{Head: []byte(head), Body: relay.Body{Data: []byte("body"), Size: 4, State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: time.Now()}},
		}
		ticket := s.Accept(e)
		<-ticket.Done()
		if err := ticket.Err(); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	c.exec(`UPDATE payloads SET framing = 999 WHERE event_id = ?`, ids[1])
	if _, err := s.AddSecret(t.Context(), relay.System(), "hooks", relay.SenderSecret{Provider: "github"}, relay.NewSecretText("value")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"valid", "", "valid"} {
		e, err := s.Request(t.Context(), relay.System(), ids[i], 100)
		if want == "" && err == nil {
			t.Error("the broken event can be read: the test shows nothing")
		}
		if want != "" && (err != nil || e.Signature == nil || e.Signature.Verdict != want) {
			t.Errorf("event %d is %+v, %v", i, e.Signature, err)
		}
	}
}
