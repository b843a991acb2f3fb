package page

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/a-h/templ"
)

// regionsHeader is the header in which the script names the regions that it wants, by their ids,
// separated by spaces. ID=ADDRESS also gives the address that the page shows in that region, so that
// an unchanged region need not be sent again.
const regionsHeader = "X-Regions"

// Partial reports whether the script asks for only some parts of a page.
func Partial(r *http.Request) bool { return r.Header.Get(regionsHeader) != "" }

// Regions is a page whose parts can be sent alone. Each part is an element with an id, and the script
// replaces the element with the same id.
type Regions struct {
	Title, Class, Alias string // see Shell
	Status              int    // status of the answer, which Show may set; 0 = 200
	All                 []Region
}

// Region is a part of a page.
type Region struct {
	ID    string // id of its element
	Inner bool   // the region is inside another region; Render leaves it out unless the script names it
	// Has reports whether the script already shows this region, given the address that the script names for
	// it; nil = never.
	Has func(address string) bool
	// Show reads and makes the region. The Show functions of a page are called in the order of its
	// regions.
	Show func() (templ.Component, error)
}

// Render writes the whole page, or the regions that the script names. If the page has none of these, the
// script runs on another page, and Render writes the main part of this page.
func (p *Regions) Render(ctx context.Context, w io.Writer) error {
	wanted, named := wantedOf(ctx), false
	for _, region := range p.All {
		_, is := wanted[region.ID]
		named = named || is
	}
	var shown []templ.Component
	for _, region := range p.All {
		address, is := wanted[region.ID]
		if named && !is || !named && region.Inner || address != "" && region.Has != nil && region.Has(address) {
			continue
		}
		c, err := region.Show()
		if err != nil {
			return err
		}
		shown = append(shown, c)
	}
	if named {
		return fragment(p.Title).Render(templ.WithChildren(ctx, templ.Join(shown...)), w)
	}
	return Shell(p.Title, p.Class, p.Alias).Render(templ.WithChildren(ctx, templ.Join(shown...)), w)
}

// Wants reports whether the script asks for a region.
func Wants(r *http.Request, id string) bool {
	_, is := wantedOf(r.Context())[id]
	return is
}

type wantedKey struct{}

// withWanted returns the request with a context that holds the regions that the request names.
func withWanted(r *http.Request) *http.Request {
	wanted := map[string]string{}
	for _, name := range strings.Fields(r.Header.Get(regionsHeader)) {
		id, address, _ := strings.Cut(name, "=")
		wanted[id] = address
	}
	return r.WithContext(context.WithValue(r.Context(), wantedKey{}, wanted))
}

// wantedOf returns the addresses of the regions that the script asks for, by their ids; an empty map =
// the whole page.
func wantedOf(ctx context.Context) map[string]string {
	wanted, _ := ctx.Value(wantedKey{}).(map[string]string)
	return wanted
}

// Acted answers a form of the page at path, whose handler returned err. If the script has sent the form, the
// answer has the message said, which the script announces, and reread, the ids of the regions that it reads
// again. Otherwise it is a redirect to path.
func Acted(w http.ResponseWriter, r *http.Request, err error, said, reread, path string) (templ.Component, error) {
	if err == nil && Partial(r) {
		return notice(said, reread), nil
	}
	return SeeOther(w, r, err, path)
}
