package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

// aliasInput names an alias.
type aliasInput struct {
	Alias string `path:"alias"`
}

// memberInput names a member of an alias.
type memberInput struct {
	Alias string `path:"alias"`
	User  string `path:"user"`
}

type aliasBody struct {
	Name string `json:"name" doc:"a DNS label: lower-case letters, digits and inner hyphens"`
}

type transferInput struct {
	Alias string `path:"alias"`
	Body  struct {
		User string `json:"user"`
	}
}

// settingsBody is the schema of a change of settings; what is not there stays.
type settingsBody struct {
	OfflineStatus    int     `json:"offlineStatus,omitempty" minimum:"200" maximum:"599"`
	AutoDeliver      bool    `json:"autoDeliver,omitempty"`
	HostHeader       string  `json:"hostHeader,omitempty" doc:"preserve, rewrite, or a literal"`
	Forwarded        bool    `json:"forwarded,omitempty"`
	FreshConnections bool    `json:"freshConnections,omitempty"`
	ResponseTimeout  *string `json:"responseTimeout,omitempty" nullable:"true" doc:"such as 90s, up to 1h; null = the server's"`
	Retention        *string `json:"retention,omitempty" nullable:"true" doc:"such as 30d; null = the server's"`
	Paused           bool    `json:"paused,omitempty"`
}

// settingsChange is a body that was checked against settingsBody; unlike that it
// tells what is not there from what is null.
type settingsChange map[string]any

// Schema is that of settingsBody.
func (settingsChange) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[settingsBody](), true, "")
}

type settingsInput struct {
	Alias string `path:"alias"`
	Body  settingsChange
}

// listAliasesInput pages the list of aliases; without a limit it is whole.
type listAliasesInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"of one page; without it the list is whole"`
	Cursor string `query:"cursor" maxLength:"100" doc:"nextCursor of the page before"`
}

// searchInput names a saved search.
type searchInput struct {
	Alias string `path:"alias"`
	Name  string `path:"name" maxLength:"200"`
	Body  struct {
		Words string `json:"words" minLength:"1" doc:"a search as it is typed in the dashboard, such as status:5xx type:invoice.*"`
	}
}

// searchNameInput names a saved search that is forgotten.
type searchNameInput struct {
	Alias string `path:"alias"`
	Name  string `path:"name" maxLength:"200"`
}

func (s *server) addAliasRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/aliases", id: "list-aliases", tag: "aliases",
		summary: "Aliases that you can see", scope: relay.ScopeAliasesRead,
	}, s.listAliases)
	registerTyped(s, route{
		method: http.MethodPost, path: "/aliases", id: "create-alias", tag: "aliases", status: http.StatusCreated,
		summary: "Create an alias", scope: relay.ScopeAliasesWrite, unlimitedOnly: true, errors: []int{http.StatusConflict},
	}, s.createAlias)
	registerTyped(s, route{
		method: http.MethodGet, path: "/aliases/{alias}", id: "get-alias", tag: "aliases",
		summary: "One alias", scope: relay.ScopeAliasesRead, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, _ *aliasInput) (*jsonBody[*record.Alias], error) {
		return s.aliasBody(ctx, c.alias, nil)
	})
	registerTyped(s, route{
		method: http.MethodPatch, path: "/aliases/{alias}", id: "update-alias", tag: "aliases",
		summary: "Change settings", scope: relay.ScopeAliasesWrite, resolve: s.resolveAlias,
	}, s.updateAlias)
	registerTyped(s, route{
		method: http.MethodDelete, path: "/aliases/{alias}", id: "delete-alias", tag: "aliases",
		summary: "Remove an alias with its events, shares, members and tunnel", scope: relay.ScopeAliasesWrite, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, _ *aliasInput) (*noContent, error) {
		return nil, s.Accounts.RemoveAlias(ctx, c.who, c.alias.Name)
	})
	registerTyped(s, route{
		method: http.MethodPost, path: "/aliases/{alias}/transfer", id: "transfer-alias", tag: "aliases",
		summary: "Transfer an alias to another account; admins can also transfer aliases of removed accounts", scope: relay.ScopeAliasesWrite, resolve: s.resolveTransferAlias,
		errors: []int{http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, in *transferInput) (*jsonBody[*record.Alias], error) {
		alias, err := s.Accounts.TransferAlias(ctx, c.who, c.alias.Name, in.Body.User)
		return s.aliasBody(ctx, alias, err)
	})
	s.addMemberRoutes()
	s.addSearchRoutes()
}

// addSearchRoutes adds the searches that an account keeps by name for an alias; the
// dashboard shows the same ones.
func (s *server) addSearchRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/aliases/{alias}/searches", id: "list-searches", tag: "aliases",
		summary: "Searches that your account saved for an alias", scope: relay.ScopeEventsRead, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, _ *aliasInput) (*jsonBody[record.List[record.SavedSearch]], error) {
		return listAnswer(func(x relay.SavedSearch) record.SavedSearch { return record.SavedSearch(x) })(s.Events.SavedSearches(ctx, c.who, c.alias.Name))
	})
	registerTyped(s, route{
		method: http.MethodPut, path: "/aliases/{alias}/searches/{name}", id: "save-search", tag: "aliases",
		summary: "Save a search, or replace the one of that name", scope: relay.ScopeEventsWrite, resolve: s.resolveAlias,
		errors: []int{http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, in *searchInput) (*noContent, error) {
		return nil, s.Events.SaveSearch(ctx, c.who, c.alias.Name, relay.SavedSearch{Name: in.Name, Words: in.Body.Words})
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/aliases/{alias}/searches/{name}", id: "forget-search", tag: "aliases",
		summary: "Forget a saved search; no error where there is none", scope: relay.ScopeEventsWrite, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, in *searchNameInput) (*noContent, error) {
		return nil, s.Events.SaveSearch(ctx, c.who, c.alias.Name, relay.SavedSearch{Name: in.Name})
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
	for i := range unowned {
		if unowned[i].Name == r.PathValue("alias") {
			c.alias = &unowned[i]
			return nil
		}
	}
	return err
}

func (s *server) addMemberRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/aliases/{alias}/members", id: "list-members", tag: "aliases",
		summary: "Accounts that can open the tunnel and view and replay events, besides the owner", scope: relay.ScopeAliasesRead, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, _ *aliasInput) (*jsonBody[record.List[record.Member]], error) {
		return listAnswer(func(name string) record.Member { return record.Member{User: name} })(s.Accounts.Members(ctx, c.who, c.alias.Name))
	})
	registerTyped(s, route{
		method: http.MethodPut, path: "/aliases/{alias}/members/{user}", id: "add-member", tag: "aliases",
		summary: "Add a member", scope: relay.ScopeAliasesWrite, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, in *memberInput) (*noContent, error) {
		return nil, s.Accounts.AddMember(ctx, c.who, c.alias.Name, in.User)
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/aliases/{alias}/members/{user}", id: "remove-member", tag: "aliases",
		summary: "Remove a member", scope: relay.ScopeAliasesWrite, resolve: s.resolveAlias,
	}, func(ctx context.Context, c *requestInfo, in *memberInput) (*noContent, error) {
		return nil, s.Accounts.RemoveMember(ctx, c.who, c.alias.Name, in.User)
	})
}

// listAliases gives one page of the aliases, by name. The cursor is the last name of the
// page before.
func (s *server) listAliases(ctx context.Context, c *requestInfo, in *listAliasesInput) (*jsonBody[record.List[record.Alias]], error) {
	aliases, err := s.Accounts.Aliases(ctx, c.who)
	if err != nil {
		return nil, err
	}
	aliases = slices.DeleteFunc(aliases, func(a relay.Alias) bool { return a.Name <= in.Cursor })
	slices.SortFunc(aliases, func(a, b relay.Alias) int { return strings.Compare(a.Name, b.Name) }) // a database may have another order of letters
	out := &jsonBody[record.List[record.Alias]]{}
	if in.Limit > 0 && len(aliases) > in.Limit {
		aliases = aliases[:in.Limit]
		out.Body.NextCursor = &aliases[in.Limit-1].Name
	}
	out.Body.Data, err = s.aliasRecords(ctx, aliases)
	return out, err
}

func (s *server) aliasRecords(ctx context.Context, aliases []relay.Alias) ([]record.Alias, error) {
	states, err := s.Deliver.Status(ctx, aliases)
	if err != nil {
		return nil, err
	}
	list := make([]record.Alias, 0, len(aliases))
	for i := range aliases {
		list = append(list, *record.OfAlias(&aliases[i], states[i], s.Site))
	}
	return list, nil
}

func (s *server) aliasBody(ctx context.Context, a *relay.Alias, err error) (*jsonBody[*record.Alias], error) {
	if err != nil {
		return nil, err
	}
	list, err := s.aliasRecords(ctx, []relay.Alias{*a})
	if err != nil {
		return nil, err
	}
	return &jsonBody[*record.Alias]{&list[0]}, nil
}

func (s *server) createAlias(ctx context.Context, c *requestInfo, in *jsonBody[aliasBody]) (*jsonBody[*record.Alias], error) {
	name := in.Body.Name
	switch {
	case !relay.ValidLabel(name):
		return nil, invalid("body.name", "expected a DNS label: 1 to 63 lower-case letters, digits and inner hyphens", shortValue(name))
	case s.Site.Reserved(name):
		return nil, invalid("body.name", "this name is reserved; choose another", name)
	}
	alias, err := s.Accounts.CreateAlias(ctx, c.who, name, c.who.AccountName)
	return s.aliasBody(ctx, alias, err)
}

func (s *server) updateAlias(ctx context.Context, c *requestInfo, in *settingsInput) (*jsonBody[*record.Alias], error) {
	alias, err := s.Accounts.SetAlias(ctx, c.who, c.alias.Name, func(to *relay.Settings) error {
		for key, value := range in.Body {
			if err := record.SetSetting(to, key, value); err != nil {
				return err
			}
		}
		return nil
	})
	return s.aliasBody(ctx, alias, err)
}
