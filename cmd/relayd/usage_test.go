package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"relay"
	"relay/cli"
	"relay/record"
)

// TestUsage: the operator finds the alias and the account that use most of the disk.
func TestUsage(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		ctx, system := t.Context(), relay.System()
		if _, err := h.app.store.CreateAccount(ctx, system, "bob", false); err != nil {
			t.Fatal(err)
		}
		for alias, owner := range map[string]string{"a-small": h.start.Admin, "b-large": "bob", "c-empty": "bob", "d-more": "bob"} {
			if _, err := h.app.store.CreateAlias(ctx, system, alias, owner); err != nil {
				t.Fatal(err)
			}
		}
		for alias, sizes := range map[string][]int{"a-small": {10, 10, 10}, "b-large": {300_000}, "d-more": {5000}} {
			for _, size := range sizes {
				answer := h.send(fmt.Sprintf("POST /x HTTP/1.1\r\nHost: %s.localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", alias, size, strings.Repeat("b", size)))
				if !strings.Contains(answer, " 202 ") {
					t.Fatal(answer)
				}
			}
		}
		list := func(into any, args ...string) {
			t.Helper()
			out, code := h.operate(append(args, "--json")...)
			if err := json.Unmarshal([]byte(out), into); err != nil || code != cli.ExitOK {
				t.Fatalf("exit %d, %v: %s", code, err, out)
			}
		}
		got := ""
		var aliases []aliasRow
		var users []record.User
		list(&aliases, "alias", "list", "--usage")
		list(&users, "user", "list", "--usage")
		for _, a := range aliases {
			got += fmt.Sprintf("%s %d %d\n", a.Name, *a.Events, *a.StoredBytes/1000)
		}
		for _, u := range users {
			got += fmt.Sprintf("%s %d %d\n", strings.Replace(u.Name, h.start.Admin, "admin", 1), *u.Events, *u.StoredBytes/1000)
		}
		if want := "b-large 1 300\nd-more 1 5\na-small 3 1\nc-empty 0 0\nbob 2 306\nadmin 3 1\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if list(&aliases, "alias", "list"); aliases[0].Name != "a-small" || aliases[0].Events != nil {
			t.Errorf("counted without --usage: %+v", aliases[0])
		}
	})
}
