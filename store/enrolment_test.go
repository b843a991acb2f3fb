package store_test

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store"
)

const strangerKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

// enrolled starts the enrolment of an unknown key and returns its link and code.
func enrolled(t *testing.T, s *store.Store, life time.Duration) (link, code string) {
	t.Helper()
	now := time.Now()
	link, code, err := s.AddEnrolment(t.Context(), relay.Enrolment{
		AuthorizedKey: strangerKey, Remote: "192.0.2.7", Client: "OpenSSH", RequestedAt: now, ExpiresAt: now.Add(life),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[2-9A-HJ-NP-Z]{8}$`).MatchString(code) || len(link) < 26 || strings.ToLower(link) != link {
		t.Errorf("link %q, code %q", link, code)
	}
	return link, code
}

// A key that waits for approval at one node can be approved at another one. The node where the key waits
// receives the approval.
func TestEnrolmentAtAnotherNode(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		told := make(chan relay.Change, 100)
		s := mustOpen(t, o)
		if _, _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(t.Context(), func(changes []relay.Change) {
			for _, c := range changes {
				if c.Kind == relay.ChangeEnrolment {
					told <- c
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateAccount(t.Context(), relay.System(), "bob", false); err != nil {
			t.Fatal(err)
		}
		acc, err := s.AccountByName(t.Context(), "bob")
		if err != nil {
			t.Fatal(err)
		}
		bob := relay.Actor{Account: acc.ID, AccountName: "bob", Kind: relay.ActorUser, Name: "bob", Scopes: relay.AllScopes}
		other, ctx := besides(t, o), t.Context()

		first, _ := enrolled(t, s, time.Hour)
		link, code := enrolled(t, s, time.Hour)
		if how, err := s.EndEnrolment(ctx, first, ""); how != relay.EnrolmentReplaced || err != nil {
			t.Errorf("an earlier one of the same key: %q, %v", how, err)
		}
		<-told
		e, err := other.Enrolment(ctx, link)
		if err != nil || e.KeyType != "ssh-ed25519" || e.Remote != "192.0.2.7" || e.Client != "OpenSSH" || e.Link != link || e.Fingerprint == "" {
			t.Errorf("at another node: %+v, %v", e, err)
		}
		if how, err := s.EndEnrolment(ctx, link, ""); how != "" || err != nil {
			t.Errorf("while it waits: %q, %v", how, err)
		}
		if err := other.ApproveEnrolment(ctx, relay.Actor{Account: acc.ID, Kind: relay.ActorToken, AccountName: "bob"}, link, code); relay.AsError(err) == nil || relay.AsError(err).Code != relay.CodeForbidden {
			t.Errorf("a token without the right: %v", err)
		}
		if err := other.ApproveEnrolment(ctx, bob, link, " "+strings.ToLower(code[:4]+"-"+code[4:])); err != nil {
			t.Fatal(err)
		}
		select {
		case c := <-told:
			if c.Credential != e.Fingerprint {
				t.Errorf("told of %+v", c)
			}
		case <-time.After(30 * time.Second):
			t.Error("the node at which the key waits was not told")
		}
		if how, err := s.EndEnrolment(ctx, link, relay.EnrolmentExpired); how != relay.EnrolmentApproved || err != nil {
			t.Errorf("after the approval: %q, %v", how, err)
		}
		if who, err := s.KeyOwner(ctx, e.Fingerprint); err != nil || who.AccountName != "bob" {
			t.Errorf("the key belongs to %+v, %v", who, err)
		}
		if err := other.ApproveEnrolment(ctx, bob, link, code); !errors.Is(err, relay.ErrNotFound) {
			t.Errorf("approved again: %v", err)
		}
		link, code = enrolled(t, s, time.Hour)
		if err := other.ApproveEnrolment(ctx, bob, link, code); relay.AsError(err) == nil || relay.AsError(err).Code != relay.CodeConflict {
			t.Errorf("a key that is registered: %v", err)
		}
		if _, err := s.Enrolment(ctx, link); err != nil {
			t.Errorf("it waits no more: %v", err)
		}
		link, code = enrolled(t, s, -time.Second)
		if err := other.ApproveEnrolment(ctx, bob, link, code); !errors.Is(err, relay.ErrNotFound) {
			t.Errorf("after its time: %v", err)
		}
	})
}

// Five wrong codes end an enrolment, even if they arrive at several nodes at once.
func TestWrongCodesEndAnEnrolment(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		withAlias(t, s)
		acc, err := s.AccountByName(t.Context(), "alice")
		if err != nil {
			t.Fatal(err)
		}
		who := relay.Actor{Account: acc.ID, AccountName: acc.Name, Kind: relay.ActorUser, Name: acc.Name, Scopes: relay.AllScopes}
		nodes := []*store.Store{s, besides(t, o)}
		link, code := enrolled(t, s, time.Hour)
		wrong := map[bool]string{true: "2222-2223", false: "2222-2222"}[code == "22222222"]
		var all sync.WaitGroup
		for i, typed := range []string{"", wrong, "ÄÖÜ", strings.Repeat("A", 1<<16), code + "A"} {
			all.Go(func() {
				err := relay.AsError(nodes[i%2].ApproveEnrolment(t.Context(), who, link, typed))
				if err == nil || err.Code != relay.CodeValidationFailed || len(err.Fields) != 1 || err.Fields[0].Location != "body.code" {
					t.Errorf("try %d: %v", i, err)
				}
			})
		}
		all.Wait()
		if err := s.ApproveEnrolment(t.Context(), who, link, code); !errors.Is(err, relay.ErrNotFound) {
			t.Errorf("the right code after five wrong ones: %v", err)
		}
		if how, err := s.EndEnrolment(t.Context(), link, ""); how != relay.EnrolmentMistyped || err != nil {
			t.Errorf("it ended %q, %v", how, err)
		}
	})
}
