package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"relay"
)

// copyPeople is a function that copies the rows of a model, whose names begin with its prefix, for another prefix.
// Ids, names and hashes are new. It returns the ids of the new accounts by their names.
const copyPeople = `CREATE FUNCTION copy_people(model text, prefix text, event_ids jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE account jsonb; alias jsonb; account_ids bigint[]; alias_ids bigint[];
BEGIN
	INSERT INTO accounts OVERRIDING SYSTEM VALUE SELECT x.* FROM accounts r, jsonb_populate_record(r, jsonb_build_object(
		'id', nextval(pg_get_serial_sequence('accounts', 'id')), 'name', prefix || substr(r.name, length(model) + 1))) x WHERE r.name LIKE model || '%';
	SELECT jsonb_object_agg(r.id, x.id), array_agg(r.id) INTO account, account_ids
		FROM accounts r JOIN accounts x ON x.name = prefix || substr(r.name, length(model) + 1) WHERE r.name LIKE model || '%';
	INSERT INTO aliases OVERRIDING SYSTEM VALUE SELECT x.* FROM aliases r, jsonb_populate_record(r, jsonb_build_object(
		'id', nextval(pg_get_serial_sequence('aliases', 'id')), 'name', prefix || substr(r.name, length(model) + 1), 'owner_id', account -> r.owner_id::text)) x
		WHERE r.name LIKE model || '%';
	SELECT jsonb_object_agg(r.id, x.id), array_agg(r.id) INTO alias, alias_ids
		FROM aliases r JOIN aliases x ON x.name = prefix || substr(r.name, length(model) + 1) WHERE r.name LIKE model || '%';
	INSERT INTO members SELECT x.* FROM members r, jsonb_populate_record(r, jsonb_build_object(
		'alias_id', alias -> r.alias_id::text, 'account_id', account -> r.account_id::text)) x WHERE r.alias_id = ANY (alias_ids);
	INSERT INTO events SELECT x.* FROM events r, jsonb_populate_record(r, jsonb_build_object(
		'id', event_ids -> r.id::text, 'alias_id', alias -> r.alias_id::text)) x WHERE r.alias_id = ANY (alias_ids);
	INSERT INTO attempts SELECT x.* FROM attempts r, jsonb_populate_record(r, jsonb_build_object(
		'event_id', event_ids -> r.event_id::text, 'alias_id', alias -> r.alias_id::text)) x WHERE r.alias_id = ANY (alias_ids);
	INSERT INTO payloads SELECT x.* FROM payloads r, jsonb_populate_record(r, jsonb_build_object(
		'event_id', event_ids -> r.event_id::text)) x WHERE event_ids ? r.event_id::text;
	INSERT INTO queue SELECT x.* FROM queue r, jsonb_populate_record(r, jsonb_build_object(
		'event_id', event_ids -> r.event_id::text, 'alias_id', alias -> r.alias_id::text)) x WHERE r.alias_id = ANY (alias_ids);
	INSERT INTO shares SELECT x.* FROM shares r, jsonb_populate_record(r, jsonb_build_object('id', r.id || prefix, 'hash', r.id || prefix,
		'event_id', event_ids -> r.event_id::text, 'alias_id', alias -> r.alias_id::text, 'account_id', account -> r.account_id::text)) x
		WHERE r.alias_id = ANY (alias_ids);
	INSERT INTO sender_secrets SELECT x.* FROM sender_secrets r, jsonb_populate_record(r, jsonb_build_object('id', r.id || prefix,
		'alias_id', alias -> r.alias_id::text, 'owner_id', account -> r.owner_id::text)) x WHERE r.alias_id = ANY (alias_ids);
	INSERT INTO tokens SELECT x.* FROM tokens r, jsonb_populate_record(r, jsonb_build_object('id', r.id || prefix, 'hash', r.id || prefix,
		'account_id', account -> r.account_id::text)) x WHERE r.account_id = ANY (account_ids);
	RETURN (SELECT jsonb_object_agg(name, id) FROM accounts WHERE name LIKE prefix || '%');
END $$`

// another returns a copy of the people, with names that begin with another prefix. Making them anew takes a
// hundred statements.
func (p *people) another(t *testing.T, prefix string) *people {
	t.Helper()
	q := &people{T: t, Store: p.Store, db: p.db, prefix: prefix, event: p.NewID(), waits: p.NewID(), key: publicKey(t), enrolls: publicKey(t)}
	events, err := json.Marshal(map[string]string{uuid(p.event): uuid(q.event), uuid(p.waits): uuid(q.waits)})
	q.must(err)
	var text []byte
	q.must(p.db.QueryRow(`SELECT copy_people($1, $2, $3)`, p.prefix, prefix, events).Scan(&text))
	var ids map[string]int64
	q.must(json.Unmarshal(text, &ids))
	for name, who := range map[string]*relay.Actor{"alice": &q.alice, "bob": &q.bob, "carol": &q.carol} {
		*who = person(ids[q.name(name)], q.name(name))
	}
	q.share, q.secret, q.token = p.share, p.secret, p.token
	q.share.ID, q.secret.ID, q.token.ID = p.share.ID+prefix, p.secret.ID+prefix, p.token.ID+prefix
	q.addOnce(t.Context())
	return q
}

// rows returns the state without the audit log, of which a copy has only the end.
func (p *people) rows() []string {
	return slices.DeleteFunc(strings.Split(p.state([2]string{}), "\n"), func(line string) bool { return strings.HasPrefix(line, "audit ") })
}

// uuid returns an id as Postgres writes it.
func uuid(id relay.ID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
