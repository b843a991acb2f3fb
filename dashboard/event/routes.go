// Package event has the pages of one event: the inspector with its attempts, the comparison of two
// messages, shares, marks, replays and new events.
package event

import "relay/dashboard/alias"

type pages struct{ alias.Pages }

// Routes adds the routes of events and of their shares.
func Routes(aliases alias.Pages) {
	p := pages{aliases}
	p.Handle("GET /events/{id}", p.OfEvent(p.event))
	p.Data("GET /events/{id}/image/{n}", p.OfEvent(p.image))
	p.Data("GET /events/{id}/json/{n}", p.OfEvent(p.wholeText))
	p.Handle("POST /events/{id}/replay", p.OfEvent(p.replay))
	p.Handle("POST /events/{id}/cancel", p.OfEvent(p.cancel))
	p.Handle("GET /events/{id}/share", p.OfEvent(p.previewShare))
	p.Handle("POST /events/{id}/shares", p.OfEvent(p.createShare))
	p.Handle("POST /events/{id}/shares/{share}/revoke", p.OfEvent(p.revokeShare))
	p.Handle("POST /events/{id}/verify", p.OfEvent(p.verify))
	p.Handle("POST /events/{id}/keep-secret", p.OfEvent(p.keepSecret))
	p.Handle("POST /events/{id}/mark", p.OfEvent(p.mark))
	p.Handle("GET /events/{id}/delete", p.OfEvent(p.confirmDelete))
	p.Handle("POST /events/{id}/delete", p.OfEvent(p.deleteEvent))
	p.Handle("GET /aliases/{alias}/send", p.OfAlias(p.composePage))
	p.Handle("POST /aliases/{alias}/send", p.OfAlias(p.send))
	p.Handle("GET /diff", p.SignedIn(p.compare))
	p.Handle("GET /s/{token}", p.Page(p.sharedEvent))
	p.Handle("POST /s/{token}/replay", p.Page(p.sharedReplay))
}
