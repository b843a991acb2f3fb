package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

type aliasBody struct {
	Name string `json:"name" doc:"a DNS label: lower-case letters, digits and inner hyphens"`
}

type transferInput struct {
	Body struct {
		User string `json:"user"`
	}
}

// settingsBody is the schema of a change of settings. Absent keys keep their values.
type settingsBody struct {
	OfflineStatus    int            `json:"offlineStatus,omitempty" minimum:"200" maximum:"599"`
	AutoDeliver      bool           `json:"autoDeliver,omitempty"`
	HostHeader       string         `json:"hostHeader,omitempty" doc:"preserve, rewrite, or a literal"`
	Forwarded        bool           `json:"forwarded,omitempty"`
	FreshConnections bool           `json:"freshConnections,omitempty"`
	ResponseTimeout  *string        `json:"responseTimeout,omitempty" nullable:"true" doc:"such as 90s, up to 1h; null = the server's"`
	Retention        *string        `json:"retention,omitempty" nullable:"true" doc:"such as 30d; null = the server's"`
	Handshakes       []string       `json:"handshakes,omitempty" doc:"names of registration challenges that the relay answers while the alias is offline, or all"`
	Answers          []answerChange `json:"answers,omitempty" maxItems:"20" doc:"what callers get while the alias is offline, in place of offlineStatus; the first that fits"`
	VerifyToken      *string        `json:"verifyToken,omitempty" nullable:"true" doc:"the token that Meta and WebSub send with a challenge, at most 512 characters; sealed, and read as true; null removes it"`
	Paused           bool           `json:"paused,omitempty"`
}

// answerChange is the schema of a relay.OfflineAnswer. Optional keys have a default.
type answerChange struct {
	Method     *string           `json:"method,omitempty" nullable:"true" doc:"null = any"`
	PathPrefix string            `json:"pathPrefix,omitempty" default:"/"`
	Status     int               `json:"status,omitempty" default:"200" minimum:"200" maximum:"599"`
	Headers    [][2]string       `json:"headers,omitempty" maxItems:"20" doc:"name and value; lines of framing, of the connection, cookies and Relay-* are refused"`
	Body       *answerBodyChange `json:"body,omitempty"`
}

type answerBodyChange struct {
	Encoding string `json:"encoding" enum:"utf8,base64"`
	Data     string `json:"data" doc:"of at most 16 KiB when decoded"`
}

// settingsChange is a body that was checked against settingsBody. Unlike settingsBody, it distinguishes
// absent keys from null.
type settingsChange map[string]any

// Schema returns the schema of settingsBody.
func (settingsChange) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[settingsBody](), true, "")
}

// listAliasesInput is the query that selects a page of the list of aliases. Without a limit, the page is the
// whole list.
type listAliasesInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"of one page; without it the list is whole"`
	Cursor string `query:"cursor" maxLength:"100" doc:"nextCursor of the page before"`
}

// searchInput has the words of a saved search.
type searchInput struct {
	Body struct {
		Words string `json:"words" minLength:"1" doc:"a search as it is typed in the dashboard, such as status:5xx type:invoice.*"`
	}
}

func (s *server) addAliasRoutes() {
	reads := route{tag: "aliases", scope: relay.ScopeAliasesRead}
	writes := route{tag: "aliases", scope: relay.ScopeAliasesWrite, unlimitedOnly: true}
	addJSON(s, reads.on("GET /aliases", "list-aliases", "Aliases that you can see"), s.listAliases)
	addJSON(s, writes.on("POST /aliases", "create-alias", "Create an alias", 201, 409), s.createAlias)
	reads.resolve, writes.resolve, writes.unlimitedOnly = s.resolveAlias, s.resolveAlias, false
	addJSON(s, reads.on("GET /aliases/{alias}", "get-alias", "One alias"),
		func(ctx context.Context, c *requestInfo, _ *noInput) (*record.Alias, error) {
			return s.aliasRecord(ctx, c.alias, nil)
		})
	addJSON(s, writes.on("PATCH /aliases/{alias}", "update-alias", "Change settings"), s.updateAlias)
	addAction(s, writes.on("DELETE /aliases/{alias}", "delete-alias", "Remove an alias with its events, shares, members and tunnel"),
		func(ctx context.Context, c *requestInfo) error {
			return s.Accounts.RemoveAlias(ctx, c.who, c.alias.Name)
		})

	members := func(ctx context.Context, c *requestInfo) ([]string, error) {
		return s.Accounts.Members(ctx, c.who, c.alias.Name)
	}
	addList(s, reads.on("GET /aliases/{alias}/members", "list-members",
		"Accounts that can open the tunnel and view and replay events, besides the owner"),
		func(name string) record.Member { return record.Member{User: name} }, members)
	addAction(s, writes.on("PUT /aliases/{alias}/members/{user}", "add-member", "Add a member"), func(ctx context.Context, c *requestInfo) error {
		return s.Accounts.AddMember(ctx, c.who, c.alias.Name, c.path("user"))
	})
	member := found(writes, "user", func(name string) string { return name }, members)
	addAction(s, member.on("DELETE /aliases/{alias}/members/{user}", "remove-member", "Remove a member"), func(ctx context.Context, c *requestInfo) error {
		return s.Accounts.RemoveMember(ctx, c.who, c.alias.Name, c.path("user"))
	})
	writes.resolve = s.resolveTransferAlias
	addJSON(s, writes.on("POST /aliases/{alias}/transfer", "transfer-alias",
		"Transfer an alias to another account; admins can also transfer aliases of removed accounts", 409),
		func(ctx context.Context, c *requestInfo, in *transferInput) (*record.Alias, error) {
			alias, err := s.Accounts.TransferAlias(ctx, c.who, c.alias.Name, in.Body.User)
			return s.aliasRecord(ctx, alias, err)
		})
	s.addSearchRoutes()
}

// addSearchRoutes adds the routes of the figures of an alias, and of the searches that an account has saved
// for it. The dashboard shows the same searches.
func (s *server) addSearchRoutes() {
	searches := route{tag: "aliases", scope: relay.ScopeEventsRead, resolve: s.resolveAlias}
	list := func(ctx context.Context, c *requestInfo) ([]relay.SavedSearch, error) {
		return s.Events.SavedSearches(ctx, c.who, c.alias.Name)
	}
	addList(s, searches.on("GET /aliases/{alias}/searches", "list-searches", "Searches that your account saved for an alias"),
		func(x relay.SavedSearch) relay.SavedSearch { return x }, list)
	addJSON(s, searches.on("GET /aliases/{alias}/figures", "get-figures", "Counts of events by status and state, and latencies, over a span"), s.figures)
	registerTyped(s, searches.on("PUT /aliases/{alias}/searches/{name}", "save-search", "Save a search, or replace the one of that name", 409),
		func(ctx context.Context, c *requestInfo, in *searchInput) (*struct{}, error) {
			return nil, s.Events.SaveSearch(ctx, c.who, c.alias.Name, relay.SavedSearch{Name: c.path("name"), Words: in.Body.Words})
		})
	saved := found(searches, "name", func(x relay.SavedSearch) string { return x.Name }, list)
	addAction(s, saved.on("DELETE /aliases/{alias}/searches/{name}", "forget-search", "Forget a saved search"),
		func(ctx context.Context, c *requestInfo) error {
			if err := saved.exists(ctx, c); err != nil { // the store reports no error for an unknown search
				return err
			}
			return s.Events.SaveSearch(ctx, c.who, c.alias.Name, relay.SavedSearch{Name: c.path("name")})
		})
}

// resolveTransferAlias resolves {alias} of a transfer: an admin may also name an alias
// whose owner was removed.
func (s *server) resolveTransferAlias(r *http.Request, c *requestInfo) error {
	err := s.resolveAlias(r, c)
	if !errors.Is(err, relay.ErrNotFound) || !c.who.Admin || !c.who.Scopes.Has(relay.ScopeAccount) || c.who.Alias != 0 {
		return err
	}
	unowned, listErr := s.Accounts.UnownedAliases(r.Context(), c.who)
	if listErr != nil {
		return listErr
	}
	i := slices.IndexFunc(unowned, func(a relay.Alias) bool { return a.Name == r.PathValue("alias") })
	if i < 0 {
		return err
	}
	c.alias = &unowned[i]
	return nil
}

// listAliases returns one page of the aliases, ordered by name. The cursor is the last name of the
// previous page.
func (s *server) listAliases(ctx context.Context, c *requestInfo, in *listAliasesInput) (out record.List[record.Alias], err error) {
	aliases, err := s.Accounts.Aliases(ctx, c.who)
	if err != nil {
		return out, err
	}
	aliases = slices.DeleteFunc(aliases, func(a relay.Alias) bool { return a.Name <= in.Cursor })
	slices.SortFunc(aliases, func(a, b relay.Alias) int { return strings.Compare(a.Name, b.Name) }) // a database may sort names in another order
	if in.Limit > 0 && len(aliases) > in.Limit {
		aliases = aliases[:in.Limit]
		out.NextCursor = &aliases[in.Limit-1].Name
	}
	out.Data, err = record.ReadAliases(ctx, s.Deliver, aliases, s.Site)
	return out, err
}

// aliasRecord returns the record of an alias that was read or changed, or err if that failed.
func (s *server) aliasRecord(ctx context.Context, a *relay.Alias, err error) (*record.Alias, error) {
	if err != nil {
		return nil, err
	}
	list, err := record.ReadAliases(ctx, s.Deliver, []relay.Alias{*a}, s.Site)
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

func (s *server) createAlias(ctx context.Context, c *requestInfo, in *jsonBody[aliasBody]) (*record.Alias, error) {
	name := in.Body.Name
	switch {
	case !relay.ValidLabel(name):
		return nil, invalid("body.name", "expected a DNS label: 1 to 63 lower-case letters, digits and inner hyphens", shortValue(name))
	case s.Site.Reserved(name):
		return nil, invalid("body.name", "this name is reserved; choose another", name)
	}
	alias, err := s.Accounts.CreateAlias(ctx, c.who, name, c.who.AccountName)
	return s.aliasRecord(ctx, alias, err)
}

func (s *server) updateAlias(ctx context.Context, c *requestInfo, in *jsonBody[settingsChange]) (*record.Alias, error) {
	alias, err := s.Accounts.SetAlias(ctx, c.who, c.alias.Name, func(to *relay.Settings) error {
		for key, value := range in.Body {
			if err := record.SetSetting(to, key, value); err != nil {
				return err
			}
		}
		return nil
	})
	return s.aliasRecord(ctx, alias, err)
}

// maxParts is the largest number of parts into which figures divide a span of time.
const maxParts = 120

// longestSpan is the longest span of time that figures cover.
const longestSpan = 400 * 24 * time.Hour

// figureParts are the possible lengths of a part. maxParts parts of the last length cover more than
// longestSpan.
var figureParts = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

type figuresInput struct {
	Span string `query:"span" default:"1h" doc:"how far back from now: from 1m to 400d"`
}

func (s *server) figures(ctx context.Context, c *requestInfo, in *figuresInput) (*record.Figures, error) {
	span, err := relay.ParseDuration(in.Span)
	if err != nil || span < time.Minute || span > longestSpan {
		return nil, invalid("query.span", "expected a duration from 1m to 400d, such as 1h or 7d", shortValue(in.Span))
	}
	part := figureParts[slices.IndexFunc(figureParts, func(part time.Duration) bool { return span <= maxParts*part })]
	parts := int((span + part - 1) / part)
	now := time.Now().UTC()
	f, err := s.Events.Figures(ctx, c.who, c.alias.Name, now.Add(-time.Duration(parts)*part), now, parts)
	if err != nil {
		return nil, err
	}
	return record.FiguresOf(c.alias.Name, &f, part), nil
}
