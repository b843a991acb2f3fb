package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"relay"
	"relay/record"
	"relay/store/db"
)

// Bounds of the events that are verified again after a secret was added.
const (
	judgedAgain     = 200             // verify at most this many events, the newest ones
	judgedAgainTime = 5 * time.Second // verify for at most this time, because the caller waits
	judgedBody      = 256 << 10       // largest body in bytes; larger bodies are only checked by the command verify
)

// AddSecret adds a secret; see people.Store. It then verifies the newest events of the sender again,
// one after another, so that it does not slow down other work.
func (s *Store) AddSecret(ctx context.Context, who relay.Actor, alias string, want relay.SenderSecret, value relay.SecretText) (relay.SenderSecret, error) {
	made, err := s.peopleStore.AddSecret(ctx, who, alias, want, value)
	if err == nil {
		if failed := s.judgeAgain(ctx, alias, made.Provider); failed != nil {
			s.log.Warn("stored events were not verified with a new secret; relay verify does so for each event", "secret", made.ID, "err", failed)
		}
	}
	return made, err
}

func (s *Store) judgeAgain(ctx context.Context, name, provider string) error {
	ctx, cancel := context.WithTimeout(ctx, judgedAgainTime)
	defer cancel()
	a, err := s.Alias(ctx, relay.System(), name)
	if err != nil {
		return err
	}
	secrets, err := s.OpenSecrets(ctx, a.ID)
	if err != nil {
		return err
	}
	if provider == record.CustomSender {
		provider = "" // a filter by provider would not find the events of this sender, because their provider is not recognised
	}
	list, err := s.Events(ctx, relay.System(), relay.Filter{Alias: name, Provider: provider, Limit: judgedAgain})
	if err != nil {
		return err
	}
	judged := map[relay.ID]*relay.Signature{}
	var first error
	for i := range list.Events {
		if ctx.Err() != nil {
			break
		}
		if before := list.Events[i].Signature; before != nil && before.SecretID != "" {
			continue // the stored verdict names another secret that matched, so it stays
		}
		e, err := s.Request(ctx, relay.System(), list.Events[i].ID, judgedBody)
		if errors.Is(err, relay.ErrNotFound) {
			continue
		}
		if err != nil { // the other events are verified anyway
			first = cmp.Or(first, err)
			continue
		}
		if verdict := record.JudgeEvent(e, s.opt.Site, secrets); verdict != nil {
			judged[e.ID] = verdict
			s.NoteValid(verdict, db.StoredTime(e.ReceivedAt))
		}
	}
	stored, cancelStored := context.WithTimeout(context.WithoutCancel(ctx), judgedAgainTime)
	defer cancelStored()
	return cmp.Or(s.StoreSignatures(stored, relay.System(), judged), first, ctx.Err())
}
