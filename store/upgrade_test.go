package store_test

import (
	"testing"
	"time"

	"relay"
	"relay/store"
)

// Finish is called twice for an upgraded connection: after the response 101 and when the connection ends. The
// bytes still count once in the storage of the alias.
func TestUpgradedConnectionCountsOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.MaxAliasStorage = 1 << 30
		s := mustServe(t, o)
		alias := withAlias(t, s)
		e := eventAt(s, alias, time.Now(), relay.StateDelivering, "x")
		settled(t, s.Accept(e))
		before := s.Retention().StoredBytes
		upgrade := func(head string) {
			settled(t, s.Finish(e.ID, &relay.Attempt{
				N: 1, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 101, ResponseState: relay.ResponseUpgraded,
				Response: relay.Message{Head: []byte(head)},
			}, ""))
		}
		upgrade("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		once := s.Retention().StoredBytes
		upgrade("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		if twice := s.Retention().StoredBytes; once <= before || twice != once {
			t.Errorf("stored %d bytes, %d at the 101, %d at the end", before, once, twice)
		}
	})
}
