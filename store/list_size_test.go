package store

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/events"
	"relay/store/plantest"
	"relay/store/schematest"
)

// listPromise is the longest time that a list may take.
const listPromise = 500 * time.Millisecond

// sizedEvents returns the number of events for the list tests. RELAY_TEST_LIST_EVENTS sets another
// number, for measurements.
func sizedEvents(t *testing.T) int {
	if text := os.Getenv("RELAY_TEST_LIST_EVENTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return sizedUsual
}

// A list is fast enough with every filter, also if one event in thousands matches, and finds all
// matches page by page.
func TestListsKeepTheirTime(t *testing.T) {
	n := sizedEvents(t)
	for name, o := range map[string]Options{
		"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: schematest.URL(t), DataDir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := s.db.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.db.Dialect.SeveralNodes() {
				makePartitions(t, s)
			}
			who := fillSized(t, s, n)
			rare := n / sizedRare
			for what, c := range map[string]struct {
				filter relay.Filter
				want   int
			}{
				"nothing":    {relay.Filter{}, -1},
				"status":     {relay.Filter{Status: "404"}, rare},
				"error":      {relay.Filter{Status: relay.StatusError}, rare},
				"state":      {relay.Filter{State: relay.StateFailed}, 0},
				"type":       {relay.Filter{Type: "charge.refunded"}, rare},
				"types":      {relay.Filter{Type: "charge.*"}, rare},
				"provider":   {relay.Filter{Provider: "github"}, 0},
				"replayed":   {relay.Filter{Replayed: new(true)}, rare},
				"path":       {relay.Filter{Path: "/none"}, 0},
				"method":     {relay.Filter{Method: "PUT"}, 0},
				"json":       {relay.Filter{JSON: []relay.FieldFilter{{Path: []string{"data", "object", "id"}, Value: "pi_rare"}}}, rare},
				"text":       {relay.Filter{Texts: []relay.TextFilter{{Text: "PI_RARE"}}}, rare},
				"exact text": {relay.Filter{Texts: []relay.TextFilter{{Text: "nowhere", Exact: true}}}, 0},
				"all":        {relay.Filter{Type: "charge.*", Status: "404", Texts: []relay.TextFilter{{Text: "pi_rare"}}}, rare},
			} {
				f := c.filter
				f.Alias, f.Limit = "big", 50
				walked := time.Now()
				found, pages, longest, first := 0, 0, time.Duration(0), time.Duration(0)
				for pages == 0 || f.Cursor != "" && (pages < 5 || n <= sizedUsual && c.want >= 0) {
					began := time.Now()
					page, err := s.Events(t.Context(), who, f)
					took := time.Since(began)
					if err != nil {
						t.Fatal(err)
					}
					if limit := relaytest.Limit(listPromise, began); took > limit {
						t.Errorf("%s: a page took %v, more than %v", what, took, limit)
					}
					if pages == 0 {
						first = took
					}
					longest, found, pages = max(longest, took), found+len(page.Events), pages+1
					f.Cursor = page.Next
				}
				if f.Cursor == "" && found != c.want {
					t.Errorf("%s: %d events, want %d", what, found, c.want)
				}
				back := ""
				if id, err := relay.ParseID(f.Cursor); err == nil {
					back = fmt.Sprintf(", back to %.1f %% of the time", 100*float64(time.Since(id.Time()))/float64(sizedSpan))
				}
				t.Logf("%-10s %d found on %d pages in %v, first %v, longest %v%s", what, found, pages, time.Since(walked).Round(time.Millisecond), first.Round(time.Millisecond), longest.Round(time.Millisecond), back)
			}
		})
	}
}

const (
	sizedUsual = 10_000             // a search of the text of so many events takes longer than a page may, so it needs several pages
	sizedRare  = 2500               // one of 2500 events has the rare values
	sizedSpan  = 7 * 24 * time.Hour // the arrival times are spread over this time
)

// fillSized makes an alias with n events of about 1 KiB. One in sizedRare has a rare type, status
// and field, and a replay; every tenth body is compressed.
func fillSized(t *testing.T, s *Store, n int) relay.Actor {
	t.Helper()
	a, err := s.CreateAccount(t.Context(), relay.System(), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	al, err := s.CreateAlias(t.Context(), relay.System(), "big", a.Name)
	if err != nil {
		t.Fatal(err)
	}
	pad := bytes.Repeat([]byte(`,"note":"an ordinary line of a webhook \u00e9 \/ and its words"`), 10)
	body := func(id string) []byte {
		return fmt.Appendf(nil, `{"id":"evt","type":"x","data":{"object":{"id":"%s","amount":12}}%s}`, id, pad)
	}
	packed := func(p []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(p)
		_ = z.Close()
		return b.Bytes()
	}
	begin := time.Now().Add(-sizedSpan + time.Minute).UnixMicro()
	step := (sizedSpan - 2*time.Minute).Microseconds() / int64(n)
	ms := fmt.Sprintf(`((%d + i * CAST(%d AS BIGINT)) / 1000)`, begin, step)
	id := fmt.Sprintf(`(lpad(to_hex(%[1]s >> 16), 8, '0') || lpad(to_hex(%[1]s & 65535), 4, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid`, ms)
	target, bin := `convert_to('/hook/' || i, 'UTF8')`, `bytea`
	if !s.db.Dialect.SeveralNodes() {
		id = fmt.Sprintf(`unhex(printf('%%08x%%04x70008000%%012x', %[1]s >> 16, %[1]s & 65535, i))`, ms)
		target, bin = `CAST('/hook/' || i AS BLOB)`, `BLOB`
	}
	at := ms + ` * CAST(1000 AS BIGINT)`
	rare := fmt.Sprintf(`i %% %d = 0`, sizedRare)
	numbers := fmt.Sprintf(`WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < %d) `, n)
	exec := func(text string, args ...any) {
		t.Helper()
		q := s.db.Session(t.Context(), s.db.Slow)
		if _, err := q.Exec(text, args...); err != nil {
			t.Fatalf("%.60s: %v", text, err)
		}
	}
	exec(numbers + fmt.Sprintf(`INSERT INTO events (`+plantest.EventColumns+`) SELECT %s, %d, %s, %s, '', 0, 'POST', %s, 1, '', 'stripe',
		CASE WHEN %s THEN 'charge.refunded' ELSE 'invoice.paid' END, '', 0, 0, 2, '', '', CASE WHEN %s THEN 404 ELSE 200 END, 1,
		CASE WHEN %s THEN 2 ELSE 1 END, 1, '', 5 FROM k`, id, al.ID, at, at, target, rare, rare, rare))
	param := `CAST(? AS ` + bin + `)`
	exec(numbers+fmt.Sprintf(`INSERT INTO payloads (`+events.PayloadColumns+`) SELECT %s, 0, CASE WHEN i %% 10 = 5 AND NOT %s THEN %s ELSE %s END, NULL, 0, 0,
		CASE WHEN %s THEN %s WHEN i %% 10 = 5 THEN %s ELSE %s END, 0, 1, 1, NULL, 'complete', NULL, NULL FROM k`, id, rare, param, param, rare, param, param, param),
		[]byte("POST / HTTP/1.1\r\nHost: big.localhost\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n"),
		[]byte("POST / HTTP/1.1\r\nHost: big.localhost\r\nContent-Type: application/json\r\n\r\n"), body("pi_rare"), packed(body("pi_1")), body("pi_1"))
	exec(numbers+fmt.Sprintf(`INSERT INTO payloads (`+events.PayloadColumns+`) SELECT %s, 1, CAST(? AS %s), NULL, 0, 0, CAST(? AS %s), 0, 1, 1, NULL, 'complete', NULL, NULL FROM k`, id, bin, bin),
		[]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), []byte("ok"))
	for _, statement := range plantest.AnalyzeTables {
		exec(statement)
	}
	return relay.Actor{Account: a.ID, AccountName: "alice", Name: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
}
