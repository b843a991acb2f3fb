package store_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"relay"
	"relay/store"
)

// A forward that was refused at one node is shown by another node, to its account only, until it is
// allowed; the newest five of an account are kept.
func TestRefusedForwardsAtAnotherNode(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		var ids []int64
		for _, name := range []string{"bob", "carol"} {
			acc, err := s.CreateAccount(t.Context(), relay.System(), name, false)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, acc.ID)
		}
		bob, carol := ids[0], ids[1]
		other := besides(t, o)
		list := func(account int64) (list []relay.RefusedForward) {
			t.Helper()
			list, err := other.RefusedForwards(t.Context(), account)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		remote := netip.MustParseAddrPort("192.0.2.7:4022")
		refuse := func(bind string) {
			s.NoteRefusedForward(bob, relay.RefusedForward{Bind: bind, Code: relay.CodeNotFound, Message: "no \x00 such", Remote: remote})
		}
		refuse("shop")
		refuse("shop")
		eventually(t, "the other node shows it", func() bool { x := list(bob); return len(x) == 1 && x[0].Times == 2 }) // the two refusals may be written together or one by one
		if x := list(bob)[0]; x.Times != 2 || x.Bind != "shop" || x.Code != relay.CodeNotFound || x.Remote != remote || x.At.IsZero() || x.Message == "" {
			t.Errorf("%+v", x)
		}
		refuse("shop")
		eventually(t, "it is counted on", func() bool { return list(bob)[0].Times == 3 })
		if x := list(carol); len(x) != 0 {
			t.Errorf("carol is shown %+v", x)
		}

		for i := range 12 {
			refuse(fmt.Sprint("b", i))
		}
		shop := func(x relay.RefusedForward) bool { return x.Bind == "shop" }
		eventually(t, "the newest are kept", func() bool { x := list(bob); return len(x) == 5 && !slices.ContainsFunc(x, shop) })
		refuse("last")
		eventually(t, "the newest is first", func() bool { x := list(bob); return len(x) == 5 && x[0].Bind == "last" })
		var n int
		if err := database(t, o).QueryRow(`SELECT count(*) FROM refused_forwards`).Scan(&n); err != nil || n != 5 {
			t.Errorf("%d rows, %v", n, err)
		}
		s.NoteAllowedForward(bob, "last")
		eventually(t, "what was allowed is not shown", func() bool { x := list(bob); return len(x) == 4 && x[0].Bind != "last" })

		if _, err := database(t, o).Exec(`UPDATE refused_forwards SET refused_at = refused_at - 3600000000`); err != nil {
			t.Fatal(err)
		}
		if x := list(bob); len(x) != 0 {
			t.Errorf("after an hour: %+v", x)
		}
	})
}
