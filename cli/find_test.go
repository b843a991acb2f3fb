package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"relay/record"
)

// eventsOf serves lists of events of two aliases, newest first, and records all other requests.
func eventsOf(t *testing.T, asked *[]string) *httptest.Server {
	type event struct{ id, alias string }
	var all []event
	for n := range 1200 {
		all = append(all, event{fmt.Sprintf("evt_%022d%04d", 2000-n, 2000-n), "other"})
	}
	all[7] = event{"evt_01k000000000000000000wxyz", "stripe-dev"}
	all[9] = event{"evt_01k0000000000000000a2wxyz", "stripe-dev"}
	all[11] = event{"evt_01k00000000000000000shop1", "stripe-dev"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		alias := r.URL.Query().Get("alias")
		switch path := strings.TrimPrefix(r.URL.Path, "/api/v1"); {
		case path != "/events":
			*asked = append(*asked, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), "/api/v1"))
			_, _ = io.WriteString(w, `{}`)
			return
		case alias != "" && !slices.Contains([]string{"stripe-dev", "other", "empty", "shop1"}, alias):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"not-found","title":"Not Found","status":404,"detail":"no such thing"}`)
			return
		}
		var limit, at int
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &at)
		page := record.Page{Data: []record.Summary{}}
		for ; at < len(all) && len(page.Data) < limit; at++ {
			if alias == "" || all[at].alias == alias {
				page.Data = append(page.Data, record.Summary{ID: all[at].id, Alias: all[at].alias})
			}
		}
		if at < len(all) {
			next := fmt.Sprint(at)
			page.NextCursor = &next
		}
		_ = (&Printer{Out: w}).Object(page)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestEventsByOtherNames: each command that takes the id of an event also takes an alias, @last and the end
// of an id, and calls the API for that event.
func TestEventsByOtherNames(t *testing.T) {
	var asked []string
	server := eventsOf(t, &asked)
	run := func(args ...string) (said string, exit int) {
		var talk bytes.Buffer
		f := &Front{
			API: func(context.Context) (*API, error) {
				return NewAPI(Connection{Base: server.URL, Transport: &http.Transport{}}), nil
			},
			Printer: func() *Printer { return &Printer{Out: io.Discard} },
			Say:     func(text string) { talk.WriteString(text + "\n") },
		}
		root := &cobra.Command{Use: "relay", SilenceErrors: true, SilenceUsage: true}
		f.AddCommands(root)
		root.SetArgs(args)
		asked = nil
		exit = f.Exit(t.Context(), root.ExecuteContext(t.Context()))
		return talk.String(), exit
	}

	newest := fmt.Sprintf("evt_%022d%04d", 2000, 2000)
	for _, tt := range []struct{ name, id, says string }{
		{"evt_01k000000000000000000wxyz", "evt_01k000000000000000000wxyz", ""},
		{"EVT_01K000000000000000000WXYZ", "evt_01k000000000000000000wxyz", ""},
		{"evt_nothing", "evt_nothing", ""}, // the relay itself refuses this id
		{"@last", newest, "@last is " + newest},
		{"stripe-dev", "evt_01k000000000000000000wxyz", "stripe-dev is evt_01k000000000000000000wxyz"},
		{"Stripe-Dev.example.com.", "evt_01k000000000000000000wxyz", " is evt_01k000000000000000000wxyz"},
		{"2WXYZ", "evt_01k0000000000000000a2wxyz", "2WXYZ is evt_01k0000000000000000a2wxyz"},
		{"shop1", "", "there is no event of shop1 yet"}, // the name of an alias takes precedence over the end of an id
		{"wxyz", "", "several ids end with wxyz: evt_01k000000000000000000wxyz, evt_01k0000000000000000a2wxyz\nhint: give more"},
		{"hop1", "evt_01k00000000000000000shop1", ""},
		{"op1", "", "op1 is no event and no alias of yours\nhint: "},
		{"0802", "", "0802 is no event"}, // this event is not among the searchedEnds newest ones
		{"1003", fmt.Sprintf("evt_%022d%04d", 1003, 1003), ""},
		{"empty", "", "there is no event of empty yet"},
		{"a b", "", "a b is no event"},
	} {
		said, exit := run("show", tt.name)
		want := []string{"GET /events/" + tt.id}
		if tt.id == "" {
			want = nil
		}
		if !slices.Equal(asked, want) || !strings.Contains(said, tt.says) || (exit == 0) != (tt.id != "") {
			t.Errorf("show %q asked %q, exit %d, said %q", tt.name, asked, exit, said)
		}
	}

	for _, tt := range []struct{ args, asks string }{
		{"replay @last", "POST /events/" + newest + "/replay"},
		{"mark @last --pinned", "PATCH /events/" + newest},
		{"share @last", "POST /events/" + newest + "/shares"},
		{"export @last", "GET /events/" + newest + "/export?format=curl"},
		{"verify @last", "POST /events/" + newest + "/verify"},
		{"show @last --before 30", "GET /events/" + newest + "/attempts?limit=20&before=30"},
		{"diff stripe-dev/1 @last/2", "GET /diff?left=evt_01k000000000000000000wxyz%2F1&right=" + newest + "%2F2"},
		{"diff stripe-dev evt_2/2", "GET /diff?left=evt_01k000000000000000000wxyz&right=evt_2%2F2"},
	} {
		if said, _ := run(strings.Fields(tt.args)...); !slices.Contains(asked, tt.asks) {
			t.Errorf("%s asked %q and said %q", tt.args, asked, said)
		}
	}
	if said, _ := run("send", "stripe-dev", "--from", "@last"); !strings.Contains(said, "@last is "+newest) {
		t.Errorf("send said %q", said)
	}
	root := &cobra.Command{}
	(&Front{}).AddCommands(root)
	for _, c := range root.Commands() {
		if strings.HasSuffix(c.Use, " ID") != strings.Contains(c.Long, eventHelp) && c.Name() != "diff" {
			t.Errorf("the help of %s says nothing of other names", c.Name())
		}
	}
}

// TestUsageErrorsNameTheRightWay: commands that read files and variables on the user's machine name their own flags in
// errors, and commands at the relay say that they cannot read files.
func TestUsageErrorsNameTheRightWay(t *testing.T) {
	t.Parallel()
	here := &Secrets{Getenv: func(string) string { return "" }}
	for _, tt := range []struct {
		args    string
		secrets *Secrets
		says    string
	}{
		{"secret add shop --provider github --from-env NONE", here, "give --from-file FILE"},
		{"secret add shop --provider github", here, "| relay secret add ALIAS --provider github"},
		{"send shop -X POST --data @body.json", nil, "standard input: < body.json"},
	} {
		var talk bytes.Buffer
		f := &Front{
			API: func(context.Context) (*API, error) {
				return NewAPI(Connection{Base: "http://127.0.0.1:1", Transport: &http.Transport{}}), nil
			},
			Printer: func() *Printer { return &Printer{Out: io.Discard} },
			Say:     func(text string) { talk.WriteString(text + "\n") },
			Stdin:   strings.NewReader(""), Secrets: tt.secrets,
		}
		root := &cobra.Command{Use: "relay", SilenceErrors: true, SilenceUsage: true}
		f.AddCommands(root)
		root.SetArgs(strings.Fields(tt.args))
		if exit := f.Exit(t.Context(), root.ExecuteContext(t.Context())); exit != ExitUsage || !strings.Contains(talk.String(), tt.says) {
			t.Errorf("%s: exit %d, %s", tt.args, exit, talk.String())
		}
	}
}
