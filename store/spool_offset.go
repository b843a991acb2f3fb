package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jmoiron/sqlx"

	"relay"
)

// An offset is a row of meta that says how far a spool file is in the database. It is
// written in the same transaction as the steps, so that each step is stored once, also when
// the result of the commit was lost, when the process was killed right after it, and when a
// file cannot be removed. A step that is stored twice would bring back what somebody removed
// in between. Each drainWorker has an offset of its own. Offsets are removed after their
// file.
const offsetPrefix = "spool/"

// offsetName is the name in meta of the offset of one worker; "" for steps without a file.
func (sg *segment) offsetName(worker int) string {
	if sg.path == "" {
		return ""
	}
	return fmt.Sprintf("%s%s/%s/%d", offsetPrefix, sg.claimant.node, filepath.Base(sg.path), worker)
}

// skipStored divides the steps of a worker into those that are not in the database and those
// that are. It locks the offset, so that an earlier transaction whose result was lost has
// ended.
func (w *writer) skipStored(l *drainWorker, steps []*step) (news, there []*step, err error) {
	if l.offsetName == "" {
		return steps, nil, nil
	}
	var value string
	if err := w.get(&value, `INSERT INTO meta (name, value) VALUES (?, '0')
		ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING value`, l.offsetName); err != nil {
		return nil, nil, err
	}
	done, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("offset %s of the spool: %w", l.offsetName, err)
	}
	n := 0
	for ; n < len(steps) && steps[n].to <= done; n++ {
		steps[n].err = nil
	}
	return steps[n:], steps[:n], nil
}

// republish publishes the changes of steps that are in the database: the result of their
// commit was lost, so they were never published.
func (w *writer) republish(steps []*step) error {
	if len(steps) == 0 {
		return nil
	}
	ids := make([]any, len(steps))
	for i, st := range steps {
		ids[i] = st.id
	}
	query, args, err := sqlx.In(`SELECT id, alias_id FROM events WHERE id IN (?)`, ids)
	if err != nil {
		return err
	}
	var rows []struct {
		ID    relay.ID `db:"id"`
		Alias int64    `db:"alias_id"`
	}
	if err := w.all(&rows, query, args...); err != nil {
		return err
	}
	aliases := make(map[relay.ID]int64, len(rows))
	for _, r := range rows {
		aliases[r.ID] = r.Alias
	}
	for _, st := range steps {
		alias, there := aliases[st.id]
		if !there {
			continue // removed since
		}
		c := relay.Change{Kind: relay.ChangeEvent, Alias: alias, Event: st.id}
		if st.kind == stepFinish || st.kind == stepRequeue {
			c.Kind, c.N = relay.ChangeAttempt, st.n
		}
		w.publish(c, relay.Change{Kind: relay.ChangeQueue, Alias: alias})
	}
	return nil
}

// saveOffset stores that the steps of a worker are in the database.
func (w *writer) saveOffset(l *drainWorker) error {
	if l.offsetName == "" {
		return nil
	}
	_, err := w.exec(`UPDATE meta SET value = ? WHERE name = ?`, strconv.FormatInt(l.to, 10), l.offsetName)
	return err
}

// removeOffsets removes the offsets of files that are removed durably; best effort.
func (d *drainer) removeOffsets(ctx context.Context) {
	prefix := offsetPrefix + d.s.spoolID + "/"
	err := d.s.update(ctx, "remove offsets of the spool", func(c *writeTx) error {
		var names []string
		if err := c.all(&names, `SELECT name FROM meta WHERE SUBSTR(name, 1, ?) = ?`, len(prefix), prefix); err != nil || len(names) == 0 {
			return err
		}
		if err := d.p.disk.syncDir(d.p.dir); err != nil { // otherwise a power loss could bring a file back
			return err
		}
		var gone []any
		for _, name := range names {
			file := filepath.Base(filepath.Dir(name))
			if _, err := os.Lstat(filepath.Join(d.p.dir, file)); os.IsNotExist(err) {
				gone = append(gone, name)
			}
		}
		if len(gone) == 0 {
			return nil
		}
		query, args, err := sqlx.In(`DELETE FROM meta WHERE name IN (?)`, gone)
		if err == nil {
			_, err = c.exec(query, args...)
		}
		return err
	})
	if err != nil && ctx.Err() == nil && unavailable(err) == "" {
		d.s.log.Debug("offsets of the spool were not removed", "err", err)
	}
}

// splitForeign leaves out the new events whose alias is not in the database: it was removed
// meanwhile, or this is another database, where its number may be that of somebody
// else's alias. They are kept aside, unless they were stored when the alias was there.
func (d *drainer) splitForeign(ctx context.Context, some drainBatch) (known, strange []*step, err error) {
	stored, err := d.loadOffsets(ctx, some.from)
	if err != nil {
		return nil, nil, err
	}
	names, err := d.aliasNames(ctx, some.steps)
	if err != nil {
		return nil, nil, err
	}
	for _, st := range some.steps {
		if st.kind == stepAccept && st.to > stored[int(st.id[15])%drainWorkers] {
			if name := names[st.event.AliasID]; name == "" || st.event.Alias != "" && st.event.Alias != name {
				d.foreignEvents[st.id] = true
			}
		}
		if d.foreignEvents[st.id] {
			strange = append(strange, st)
		} else {
			known = append(known, st)
		}
	}
	if len(strange) > 0 {
		d.p.log.Warn("events of aliases that are not in this database are left out; they stay in the data dir, until you remove them",
			"file", spoolRefused, "steps", len(strange))
	}
	return known, strange, nil
}

// loadOffsets reads the offsets of all workers in a file; -1 for a worker without one.
func (d *drainer) loadOffsets(ctx context.Context, from *segment) (to [drainWorkers]int64, err error) {
	for i := range to {
		to[i] = -1
		var value []string
		if err := d.session(ctx).all(&value, `SELECT value FROM meta WHERE name = ?`, from.offsetName(i)); err != nil {
			return to, err
		}
		if len(value) > 0 {
			if to[i], err = strconv.ParseInt(value[0], 10, 64); err != nil {
				return to, fmt.Errorf("offset %s of the spool: %w", from.offsetName(i), err)
			}
		}
	}
	return to, nil
}

func (d *drainer) session(ctx context.Context) session {
	return session{ctx, d.s.write, &d.s.d, &d.s.clock}
}

// aliasNames returns the names of the aliases of new events.
func (d *drainer) aliasNames(ctx context.Context, steps []*step) (map[int64]string, error) {
	names := map[int64]string{}
	var ids []any
	for _, st := range steps {
		if st.kind != stepAccept {
			continue
		}
		if _, asked := names[st.event.AliasID]; !asked {
			names[st.event.AliasID] = ""
			ids = append(ids, st.event.AliasID)
		}
	}
	if len(ids) == 0 {
		return names, nil
	}
	query, args, err := sqlx.In(`SELECT id, name FROM aliases WHERE id IN (?)`, ids)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		ID   int64  `db:"id"`
		Name string `db:"name"`
	}
	if err := d.session(ctx).all(&rows, query, args...); err != nil {
		return nil, err
	}
	for _, r := range rows {
		names[r.ID] = r.Name
	}
	return names, nil
}
