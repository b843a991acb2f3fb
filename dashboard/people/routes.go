// Package people has the pages of accounts: login, invitations, keys that wait for approval, the
// account with its keys, tokens and sessions, the accounts of the relay and the audit log.
package people

import "relay/dashboard/page"

type pages struct{ *page.Pages }

// Routes adds the routes of accounts.
func Routes(shared *page.Pages) {
	p := pages{shared}
	p.Handle("GET /account", p.SignedIn(page.FormPage(p.account).Empty))
	p.Handle("GET /account/audit", p.SignedIn(p.audit(false)))
	p.Handle("POST /account/keys", p.SignedIn(p.addKey))
	p.Handle("POST /account/keys/{id}/remove", p.SignedIn(removal(p.Accounts.RemoveKey, "key-removed")))
	p.Handle("POST /account/tokens", p.SignedIn(p.createToken))
	p.Handle("POST /account/tokens/{id}/remove", p.SignedIn(removal(p.Accounts.RemoveToken, "token-removed")))
	p.Handle("POST /account/sessions/{id}/remove", p.SignedIn(removal(p.Accounts.RemoveSession, "logged-out")))
	p.Handle("GET /admin", p.onlyAdmin(page.FormPage(p.admin).Empty))
	p.Handle("GET /admin/audit", p.onlyAdmin(p.audit(true)))
	p.Handle("POST /admin/users", p.onlyAdmin(p.addUser))
	p.Handle("POST /admin/users/{user}/invite", p.onlyAdmin(p.inviteUser))
	p.Handle("POST /admin/users/{user}/remove", p.onlyAdmin(p.removeUser))
	p.Handle("POST /admin/aliases/{alias}/transfer", p.onlyAdmin(p.transferUnowned))
	p.Handle("GET /invite/{token}", p.Page(p.invite))
	p.Handle("POST /invite/{token}", p.Page(p.useInvite))
	if p.Enrolments != nil {
		p.Handle("GET /link/{code}", p.SignedInOrElse(page.FormPage(p.enrolment).Empty, p.enrolmentLogin))
		p.Handle("POST /link/{code}", p.SignedInOrElse(p.approve, p.enrolmentLogin))
	}
	p.Handle("GET /login/{token}", p.Page(p.login))
	p.Handle("POST /login/{token}", p.Page(p.useLogin))
	p.Handle("POST /logout", p.Page(p.logout))
}
