package alias

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// found is a result of the palette, the search box over all pages, with its link.
type found struct{ Kind, Text, Link string }

// foundMost bounds the results of one kind.
const foundMost = 8

// find returns the results of the palette for a typed text: the event with this id, aliases whose names contain
// the text, and event types of the alias whose page is open.
func (p Pages) find(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	text, current := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("text"))), r.URL.Query().Get("alias")
	var list []found
	if id, err := relay.ParseID(text); err == nil {
		list = append(list, found{"event", id.String(), page.EventPath(id.String())})
	}
	aliases, err := p.Accounts.Aliases(r.Context(), who)
	if err != nil {
		return nil, err
	}
	for i := range aliases {
		if name := aliases[i].Name; strings.Contains(name, text) && len(list) < foundMost {
			list = append(list, found{"alias", name, page.AliasPath(name)})
		}
	}
	if current == "" {
		return foundLinks(list), nil
	}
	choices, err := p.Events.Choices(r.Context(), who, current)
	if err != nil && !errors.Is(err, relay.ErrNotFound) {
		return nil, err
	}
	for _, kind := range choices.Types {
		if strings.Contains(strings.ToLower(kind), text) && kind == record.SafeText(kind) && len(list) < 2*foundMost {
			list = append(list, found{"events", kind, page.WithQuery(page.AliasPath(current), url.Values{"type": {kind}})})
		}
	}
	return foundLinks(list), nil
}
