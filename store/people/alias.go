package people

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"relay"
	"relay/store/db"
)

// nameKept is the time for which no other account can get the name of a removed alias.
const nameKept = 30 * 24 * time.Hour

// churn is the number of aliases that an account may remove within nameKept, as a multiple of its quota
// of aliases.
const churn = 10

const aliasQuery = `SELECT al.id, al.name, al.owner_id, own.name, own.max_queue, al.created_at, al.last_online_at, al.offline_status,
	al.auto_deliver, al.host_header, al.forwarded, al.fresh_connections, al.response_timeout_us * 1000, al.retention_us * 1000, al.paused,
	al.handshakes, al.answers, EXISTS (SELECT 1 FROM sender_secrets t WHERE t.alias_id = al.id AND t.owner_id = al.owner_id AND t.provider = '` + verifyToken + `')
	FROM aliases al JOIN accounts own ON own.id = al.owner_id WHERE `

func aliasFields(a *relay.Alias) []any {
	set := &a.Settings
	return []any{
		&a.ID, &a.Name, &a.Owner, &a.OwnerName, &a.OwnerMaxQueue, (*db.Time)(&a.CreatedAt), (*db.Time)(&a.LastOnlineAt), &set.OfflineStatus,
		&set.AutoDeliver, &set.HostHeader, &set.Forwarded, &set.FreshConnections, &set.ResponseTimeout, &set.Retention, &set.Paused,
		(*handshakes)(&set.Handshakes), (*answers)(&set.Answers),
		keptToken{&set.VerifyToken},
	}
}

func spanArg(d *time.Duration) any {
	if d == nil {
		return nil
	}
	return d.Microseconds()
}

// oneAlias returns the only alias that the condition selects, or ErrNotFound.
func oneAlias(q db.Query, where string, args ...any) (*relay.Alias, error) {
	a, err := db.RowOf(q, aliasFields, aliasQuery+where, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, relay.ErrNotFound
	}
	return &a, err
}

// FindAlias finds an alias that the actor owns or is a member of.
func FindAlias(q db.Query, who relay.Actor, name string) (*relay.Alias, error) {
	may, args := AliasAccess(who)
	return oneAlias(q, `al.name = ? AND `+may, append([]any{db.StorableText(name)}, args...)...)
}

// ownAlias finds an alias that the actor owns, or, for the operator, any alias. The error for an alias that
// the actor only is a member of is forbidden.
func ownAlias(q db.Query, who relay.Actor, name string) (*relay.Alias, error) {
	a, err := FindAlias(q, who, name)
	if err == nil && who.Kind != relay.ActorSystem && a.Owner != who.Account {
		return nil, relay.Errorf(relay.CodeForbidden, "only the owner of %s may do this", name)
	}
	return a, err
}

// AliasSlice is the number of aliases that AllAliases reads in one statement. It is small, because a start fails if one of
// these statements takes longer than db.OpTimeout, as 5,000 aliases did on a machine that was a hundred times slower than
// an idle one.
const AliasSlice = 1000

// AllAliases reads every alias with its verify token, in the order of the ids, for delivery/registry.
func (s *Store) AllAliases(ctx context.Context) (list []relay.Alias, err error) {
	for after := int64(0); ; after = list[len(list)-1].ID {
		some, err := db.ReadRows(ctx, s.db, "read aliases", aliasFields, aliasQuery+`al.id > ? ORDER BY al.id LIMIT ?`, after, AliasSlice)
		if err != nil {
			return nil, err
		}
		if list = append(list, some...); len(some) < AliasSlice {
			return list, s.openTokens(ctx, list)
		}
	}
}

// AliasByID reads one alias with its verify token, for delivery/registry; ErrNotFound if it was removed.
func (s *Store) AliasByID(ctx context.Context, id int64) (*relay.Alias, error) {
	a, err := db.Read(ctx, s.db, "read alias", func(q db.Query) (*relay.Alias, error) { return oneAlias(q, `al.id = ?`, id) })
	if err != nil || a.Settings.VerifyToken == nil {
		return a, err
	}
	one := []relay.Alias{*a}
	err = s.openTokens(ctx, one)
	return &one[0], err
}

// Aliases returns the aliases that the actor owns or is a member of, sorted by name.
func (s *Store) Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error) {
	may, args := AliasesAccess(who)
	return db.ReadRows(ctx, s.db, "read aliases", aliasFields, aliasQuery+may+` ORDER BY al.name`, args...)
}

// Alias reads an alias that the actor owns or is a member of.
func (s *Store) Alias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error) {
	return db.Read(ctx, s.db, "read alias", func(q db.Query) (*relay.Alias, error) { return FindAlias(q, who, name) })
}

// CreateAlias creates an alias of the account with the name owner; "" is the account of the actor. Only admins
// may name another account. Errors: validation-failed for an invalid name and for one that no alias may have;
// conflict for a name that is taken or reserved for another account, and for a full quota.
func (s *Store) CreateAlias(ctx context.Context, who relay.Actor, name, owner string) (a *relay.Alias, err error) {
	may := cmp.Or(allowAccount(who, relay.ScopeAliasesWrite), checkAliasName(name))
	err = s.db.UpdateIf(ctx, may, "create alias", func(c *db.Tx) error {
		account, err := subjectOf(c.Query, who, owner)
		if err != nil {
			return err
		}
		a, err = s.makeAlias(c, who, account, name)
		return err
	})
	return a, err
}

// ClaimAlias returns an alias that the actor may attach; see sshgate.Accounts.
func (s *Store) ClaimAlias(ctx context.Context, who relay.Actor, name string) (a *relay.Alias, err error) {
	if err := checkAliasName(name); err != nil {
		return nil, err
	}
	if a, err = s.Alias(ctx, who, name); !errors.Is(err, relay.ErrNotFound) {
		return a, err
	}
	if !s.opt.AliasClaim || who.Alias != 0 || who.Account == 0 {
		return nil, relay.ErrNotFound
	}
	err = s.db.UpdateIf(ctx, Allow(who, relay.ScopeAliasesWrite), "claim alias", func(c *db.Tx) error {
		account, err := subjectOf(c.Query, who, "")
		if err != nil {
			return err
		}
		if a, err = s.makeAlias(c, who, account, name); err == nil {
			return nil
		}
		if claimed, again := FindAlias(c.Query, who, name); again == nil { // another connection of the account has created the alias meanwhile
			a = claimed
			return nil
		}
		if errors.Is(err, errNameTaken) {
			return relay.ErrNotFound // the error does not reveal the owner
		}
		return err
	})
	return a, err
}

func checkAliasName(name string) error {
	switch {
	case !relay.ValidLabel(name):
		return Invalid("name", name, "an alias is 1 to 63 lower-case letters, digits and inner hyphens")
	case relay.ReservedLabel(name):
		return Invalid("name", name, "this name is reserved; choose another one")
	}
	return nil
}

// Invalid returns the error validation-failed for one field.
func Invalid(field string, value any, message string) *relay.Error {
	e := relay.Errorf(relay.CodeValidationFailed, "%s: %s", field, message)
	e.Fields = []relay.FieldError{{Location: "body." + field, Message: message, Value: value}}
	return e
}

var errNameTaken = errors.New("alias name taken")

// checkChurn refuses a new name if the account has removed too many aliases lately. The name of each removed
// alias is reserved for nameKept, and an account must not reserve any number of names by creating and
// removing aliases.
func (s *Store) checkChurn(c *db.Tx, owner relay.Account, now time.Time) error {
	var released int
	if err := c.Get(&released, `SELECT COUNT(*) FROM kept_names WHERE account_id = ? AND until > ?`, owner.ID, db.Micros(now)); err != nil {
		return err
	}
	if s.opt.MaxAliases > 0 && released >= churn*s.opt.MaxAliases {
		return relay.Errorf(relay.CodeConflict, "%s released %d names within 30 days, which is the limit; use one of those again", owner.Name, released)
	}
	return nil
}

// makeAlias creates an alias with a free name, within the quota of the account.
func (s *Store) makeAlias(c *db.Tx, who relay.Actor, owner relay.Account, name string) (*relay.Alias, error) {
	now := s.db.Now()
	if err := LockAccount(c, owner.ID); err != nil { // two creations at once could exceed the quota
		return nil, err
	}
	c.LockText("alias name", name) // another transaction may be removing an alias of this name
	var keptFor []int64            // the account that removed the last alias of this name, if any
	if err := c.All(&keptFor, `SELECT account_id FROM kept_names WHERE name = ? AND until > ?`, name, s.over(0)); err != nil {
		return nil, err
	}
	notFree := relay.Errorf(relay.CodeConflict, "the name %s is not free; choose another one", name)
	notFree.Cause = errNameTaken
	if len(keptFor) == 0 { // an account can always get its own removed name back
		if err := s.checkChurn(c, owner, now); err != nil {
			return nil, err
		}
	} else if keptFor[0] != owner.ID {
		return nil, notFree
	}
	if err := s.checkQuota(c, owner); err != nil {
		return nil, err
	}
	d := relay.DefaultSettings()
	var ids []int64
	if err := c.All(&ids, `INSERT INTO aliases (name, owner_id, created_at, offline_status, auto_deliver, host_header, forwarded, fresh_connections, paused)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id`, name, owner.ID, db.Micros(now), d.OfflineStatus,
		db.BoolToInt(d.AutoDeliver), d.HostHeader, db.BoolToInt(d.Forwarded), db.BoolToInt(d.FreshConnections), db.BoolToInt(d.Paused)); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, notFree
	}
	c.Do(`DELETE FROM kept_names WHERE name = ?`, name)
	c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: ids[0], Account: owner.ID})
	if err := Audit(c, who, owner.ID, "alias.add", name, "owner "+owner.Name); err != nil {
		return nil, err
	}
	return oneAlias(c.Query, `al.id = ?`, ids[0])
}

// handshakes is a column with the names of challenges.
type handshakes []string

// Scan implements sql.Scanner.
func (h *handshakes) Scan(stored any) error {
	text, err := textOf(stored)
	*h = append([]string{}, strings.Fields(text)...)
	return err
}

// answers is a column with the answers while an alias is offline.
type answers []relay.OfflineAnswer

// Scan implements sql.Scanner.
func (a *answers) Scan(stored any) error {
	text, err := textOf(stored)
	if *a = []relay.OfflineAnswer{}; text == "" || err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), (*[]relay.OfflineAnswer)(a))
}

// answersText returns the stored form of answers.
func answersText(list []relay.OfflineAnswer) string {
	if len(list) == 0 {
		return ""
	}
	text, _ := json.Marshal(list) // never fails, because the list has only texts and numbers
	return string(text)
}

// textOf returns a text column, which the engines return in different types.
func textOf(stored any) (string, error) {
	switch v := stored.(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf("a %T where a text is stored", stored)
}
