// Package alias has the pages of aliases: the list of all aliases, and for each one its events with a
// filter, the overview with its figures, the queue, the live updates and the settings.
package alias

import (
	"relay/dashboard/page"
)

// Pages are the pages of aliases. The pages of events embed this type, because they show the list of their
// alias.
type Pages struct{ *page.Pages }

// Routes adds the routes of the pages of aliases.
func Routes(shared *page.Pages) Pages {
	p := Pages{shared}
	p.Handle("GET /{$}", p.SignedIn(page.FormPage(p.home).Empty))
	p.Data("GET /live", p.SignedIn(p.sidebarLive))
	p.Data("GET /go", p.SignedIn(p.find))
	p.Handle("POST /aliases", p.SignedIn(p.createAlias))
	p.Handle("GET /aliases/{alias}", p.OfAlias(p.stream))
	p.Data("GET /aliases/{alias}/live", p.OfAlias(p.live))
	p.Data("GET /aliases/{alias}/qr.svg", p.OfAlias(p.qrCode))
	p.Data("GET /aliases/{alias}/complete", p.SignedIn(p.completeFilter))
	p.Handle("POST /aliases/{alias}/searches", p.SignedIn(p.saveSearch))
	p.Handle("POST /aliases/{alias}/test", p.OfAlias(p.sendSample))
	p.Handle("GET /aliases/{alias}/replay", p.OfAlias(p.confirmReplays))
	p.Handle("POST /aliases/{alias}/replay", p.OfAlias(p.replayMany))
	p.Handle("GET /aliases/{alias}/replay-queued", p.OfAlias(p.confirmRelease))
	p.Handle("POST /aliases/{alias}/replay-queued", p.OfAlias(p.release))
	p.Handle("GET /aliases/{alias}/settings", p.OfAlias(p.settings))
	p.Handle("POST /aliases/{alias}/settings", p.OfOwnAlias(p.saveSettings))
	p.Handle("POST /aliases/{alias}/settings/secrets", p.OfOwnAlias(p.addSecret))
	p.Handle("POST /aliases/{alias}/settings/secrets/{id}/remove", p.OfOwnAlias(p.removeSecret))
	p.Handle("POST /aliases/{alias}/settings/handshakes", p.OfOwnAlias(p.answerChallenge))
	p.Handle("POST /aliases/{alias}/settings/members", p.OfOwnAlias(p.addMember))
	p.Handle("POST /aliases/{alias}/settings/members/{user}/remove", p.OfAlias(p.removeMember))
	p.Handle("POST /aliases/{alias}/settings/transfer", p.OfOwnAlias(p.transferAlias))
	p.Handle("POST /aliases/{alias}/settings/remove", p.OfOwnAlias(p.removeAlias))
	return p
}
