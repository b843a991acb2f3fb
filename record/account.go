package record

import (
	"encoding/json"
	"strings"
	"time"

	"relay"
)

// ViaHeader names the client through which an actor calls the API, such as "mcp claude-code 2.1".
const ViaHeader = "Relay-Via"

// Me describes the actor of a request: its account and the rights of its credential.
type Me struct {
	User   string   `json:"user"`
	Admin  bool     `json:"admin"`
	Scopes []string `json:"scopes" nullable:"false"`
	Alias  *string  `json:"alias" doc:"the one alias that the credential is limited to, or null"`
	// TokenID lets a client that only knows the secret of a token revoke that token.
	TokenID *string `json:"tokenId" doc:"of the token that asks, or null when no token does"`
}

// OfActor returns the JSON form of an actor.
func OfActor(who relay.Actor) *Me {
	me := &Me{User: who.AccountName, Admin: who.Admin, Scopes: who.Scopes.Names(), Alias: textOf(who.AliasName)}
	if who.Kind == relay.ActorToken {
		me.TokenID = textOf(who.Credential)
	}
	return me
}

// User is an account.
type User struct {
	Name      string `json:"name"`
	Admin     bool   `json:"admin"`
	CreatedAt Time   `json:"createdAt" format:"date-time"`
	// MaxAccountStorage is the account's own limit; null = the limit of the server applies.
	MaxAccountStorage *int64 `json:"maxAccountStorage" doc:"bytes that all its aliases may store; 0 = no limit, null = the server's limit"`
	StorageLimit      *int64 `json:"storageLimit" doc:"the limit that counts now; null = none, or not asked for"`
	MaxAccountQueue   *int64 `json:"maxAccountQueue" doc:"attempts that may be queued at all its aliases; 0 = no limit, null = the server's limit"`
	QueueLimit        *int   `json:"queueLimit" doc:"the limit that counts now; null = none, or not asked for"`
	Queued            *int   `json:"queued" doc:"queued attempts at all its aliases; null = not asked for"`
	Events            *int   `json:"events" doc:"stored events of all its aliases; null = not counted, which takes long: only relayd user list --usage does"`
	StoredBytes       *int64 `json:"storedBytes" doc:"of requests and responses, as the limit counts them; null = not asked for"`
}

// OfAccount returns the JSON form of an account, without its usage.
func OfAccount(a relay.Account) User {
	return User{Name: a.Name, Admin: a.Admin, CreatedAt: Time{a.CreatedAt}, MaxAccountStorage: a.MaxStorage, MaxAccountQueue: a.MaxQueue}
}

// OfAccountUsage is like OfAccount, and adds the stored and queued amounts of the account and its limits.
func OfAccountUsage(a relay.Account, usage relay.AccountUsage) User {
	u := OfAccount(a)
	u.StoredBytes, u.Queued = &usage.Bytes, &usage.Queued
	if usage.Limit > 0 {
		u.StorageLimit = &usage.Limit
	}
	if usage.QueueLimit > 0 {
		u.QueueLimit = &usage.QueueLimit
	}
	return u
}

// Token is an API token. Its field Token is set only in the response to the call that made it.
type Token struct {
	ID         string   `json:"id"`
	Token      string   `json:"token,omitempty" doc:"shown once, when it is made"`
	User       string   `json:"user"`
	Name       string   `json:"name"`
	Scopes     []string `json:"scopes" nullable:"false"`
	Alias      *string  `json:"alias"`
	CreatedAt  Time     `json:"createdAt" format:"date-time"`
	ExpiresAt  *Time    `json:"expiresAt" format:"date-time"`
	LastUsedAt *Time    `json:"lastUsedAt" format:"date-time"`
}

// OfToken returns the JSON form of a token; secret is "" except in the response to the call that made
// it.
func OfToken(t relay.Token, secret string) Token {
	return Token{
		ID: t.ID, Token: secret, User: t.AccountName, Name: t.Name, Scopes: t.Scopes.Names(), Alias: textOf(t.Alias),
		CreatedAt: Time{t.CreatedAt}, ExpiresAt: timeOf(t.ExpiresAt), LastUsedAt: timeOf(t.LastUsedAt),
	}
}

// SenderSecret is a secret of a sender, without its value.
type SenderSecret struct {
	ID          string          `json:"id"`
	Provider    string          `json:"provider"`
	Custom      json.RawMessage `json:"custom,omitempty" doc:"the scheme, where the provider is custom"`
	Path        *string         `json:"path" doc:"prefix of the request targets that it is for; null = all"`
	Sign        bool            `json:"sign" doc:"requests may be signed with it"`
	CreatedAt   Time            `json:"createdAt" format:"date-time"`
	CreatedBy   string          `json:"createdBy"`
	LastValidAt *Time           `json:"lastValidAt" format:"date-time" doc:"when it last fitted a request"`
}

// OfSecret returns the JSON form of a secret of a sender.
func OfSecret(s relay.SenderSecret) SenderSecret {
	return SenderSecret{
		ID: s.ID, Provider: s.Provider, Custom: json.RawMessage(s.Custom), Path: textOf(s.Path), Sign: s.Sign,
		CreatedAt: Time{s.CreatedAt}, CreatedBy: s.CreatedBy, LastValidAt: timeOf(s.LastValidAt),
	}
}

// NameFault returns the fault in the name of a token or key, as the predicate of a sentence; "" =
// none. Names appear in lists, logs and audit rows, so they must not need escapes.
func NameFault(name string) string {
	if IsSafeText(name) {
		return ""
	}
	return "holds characters that cannot be shown as they are, such as control characters, line ends or invisible ones; leave them out"
}

// Key is a registered SSH public key.
type Key struct {
	ID          string `json:"id"`
	User        string `json:"user"`
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Type        string `json:"type"`
	CreatedAt   Time   `json:"createdAt" format:"date-time"`
	LastUsedAt  *Time  `json:"lastUsedAt" format:"date-time"`
}

// OfKey returns the JSON form of a key.
func OfKey(k relay.Key) Key {
	return Key{
		ID: k.ID, User: k.AccountName, Name: k.Name, Fingerprint: k.Fingerprint, Type: k.Type,
		CreatedAt: Time{k.CreatedAt}, LastUsedAt: timeOf(k.LastUsedAt),
	}
}

// Session is a dashboard login.
type Session struct {
	ID         string `json:"id"`
	CreatedAt  Time   `json:"createdAt" format:"date-time"`
	LastUsedAt *Time  `json:"lastUsedAt" format:"date-time"`
	ExpiresAt  *Time  `json:"expiresAt" format:"date-time"`
	RemoteAddr string `json:"remoteAddr"`
	UserAgent  string `json:"userAgent"`
	Current    bool   `json:"current" doc:"the one that asks"`
}

// OfSession returns the JSON form of a session. It is marked as current if the actor is logged in with it.
func OfSession(s relay.Session, who relay.Actor) Session {
	agent, _ := lossy([]byte(s.UserAgent))
	return Session{
		ID: s.ID, CreatedAt: Time{s.CreatedAt}, LastUsedAt: timeOf(s.LastUsedAt), ExpiresAt: timeOf(s.ExpiresAt),
		RemoteAddr: s.Remote, UserAgent: agent, Current: who.Kind == relay.ActorUser && who.Credential == s.ID,
	}
}

// Share is the permission to replay one event and, with View, to see it. Token, URL and ReplayURL are set only
// in the response to the call that made the share.
type Share struct {
	ID        string `json:"id"`
	Token     string `json:"token,omitempty" doc:"shown once, when it is made"`
	URL       string `json:"url,omitempty" doc:"the page for people; shown once"`
	ReplayURL string `json:"replayUrl,omitempty" doc:"POST here to replay; shown once"`
	ExpiresAt *Time  `json:"expiresAt" format:"date-time"`
	View      bool   `json:"view" doc:"the holder can also view headers and body, with secrets masked"`
	OneUse    bool   `json:"oneUse" doc:"the first replay ends the share"`
	Uses      int    `json:"uses"`
	CreatedAt Time   `json:"createdAt" format:"date-time"`
}

// OfShare returns the JSON form of a share; secret is "" except in the response to the call that made
// it.
func OfShare(s relay.Share, secret string, site relay.Site) Share {
	out := Share{ID: s.ID, ExpiresAt: timeOf(s.ExpiresAt), View: s.View, OneUse: s.OneUse, Uses: s.Uses, CreatedAt: Time{s.CreatedAt}}
	if secret != "" {
		out.Token = secret
		out.URL = site.URL("/s/" + secret)
		out.ReplayURL = site.URL("/api/v1/events/shared/" + secret + "/replay")
	}
	return out
}

// Invite is a link with which one user may add a key to an account.
type Invite struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expiresAt" format:"date-time"`
}

// OfInvite returns the JSON form of an invitation.
func OfInvite(secret string, expires time.Time, site relay.Site) *Invite {
	return &Invite{URL: site.URL("/invite/" + secret), ExpiresAt: Time{expires}}
}

// AuditEntry is one entry of the audit log: actor, action, target and time.
type AuditEntry struct {
	ID     int64   `json:"id"`
	At     Time    `json:"at" format:"date-time"`
	Actor  string  `json:"actor"`
	Via    *string `json:"via" doc:"mcp where an agent acted for the actor, or null"`
	Client *string `json:"client" doc:"program that the agent says it runs in, or null"`
	Action string  `json:"action"`
	Target string  `json:"target"`
	Detail string  `json:"detail"`
}

// viaOf splits the Via of an actor into its first word, such as mcp, and the client program.
func viaOf(via string) (by, client *string) {
	name, rest, _ := strings.Cut(via, " ")
	return textOf(name), textOf(rest)
}

// OfAudit returns the JSON form of an audit entry.
func OfAudit(a relay.AuditEntry) AuditEntry {
	by, client := viaOf(a.Via)
	return AuditEntry{ID: a.ID, At: Time{a.At}, Actor: a.Actor, Via: by, Client: client, Action: a.Action, Target: a.Target, Detail: a.Detail}
}
