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

// A mark is a row of meta that says how far a file of the spool is in the database. It
// is written in the same transaction as the steps: so each of them is stored once,
// also when the answer of the commit was lost, when the process was killed before it
// noted that, and when a file cannot be removed. Stored again they would bring back
// what somebody removed meanwhile. Each connection that writes the spool has a mark of
// its own, and marks go when their file is gone.
const markPrefix = "spool/"

// mark names the mark of one connection; "" for steps that are in no file.
func (sg *segment) mark(lane int) string {
	if sg.path == "" {
		return ""
	}
	return fmt.Sprintf("%s%s/%s/%d", markPrefix, sg.by.node, filepath.Base(sg.path), lane)
}

// unmarked gives those of a lane's steps that are not in the database, and those that
// are there. A transaction that may still be under way has ended by then: the mark is
// locked.
func (w *writer) unmarked(l *lane, steps []*step) (news, there []*step, err error) {
	if l.mark == "" {
		return steps, nil, nil
	}
	var value string
	if err := w.get(&value, `INSERT INTO meta (name, value) VALUES (?, '0')
		ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING value`, l.mark); err != nil {
		return nil, nil, err
	}
	done, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("mark %s of the spool: %w", l.mark, err)
	}
	n := 0
	for ; n < len(steps) && steps[n].to <= done; n++ {
		steps[n].err = nil
	}
	return steps[n:], steps[:n], nil
}

// retell publishes what steps did that are in the database: the answer of that commit
// was lost, and nobody heard of it.
func (w *writer) retell(steps []*step) error {
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

// mark notes that the database has a lane's steps.
func (w *writer) mark(l *lane) error {
	if l.mark == "" {
		return nil
	}
	_, err := w.exec(`UPDATE meta SET value = ? WHERE name = ?`, strconv.FormatInt(l.to, 10), l.mark)
	return err
}

// tidyMarks removes the marks of files that are gone for good; best effort.
func (d *drainer) tidyMarks(ctx context.Context) {
	prefix := markPrefix + d.s.node + "/"
	err := d.s.update(ctx, "remove marks of the spool", func(c *change) error {
		var names []string
		if err := c.all(&names, `SELECT name FROM meta WHERE SUBSTR(name, 1, ?) = ?`, len(prefix), prefix); err != nil || len(names) == 0 {
			return err
		}
		if err := syncDir(d.p.dir); err != nil { // or a power loss might bring one back
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
		d.s.log.Debug("marks of the spool stay for now", "err", err)
	}
}

// known leaves out the new events whose alias is not in the database: it was removed
// meanwhile, or this is another database, where its number may be that of somebody
// else's alias. They are kept aside, unless they were stored when the alias was there.
func (d *drainer) known(ctx context.Context, some portion) (known, strange []*step, err error) {
	stored, err := d.stored(ctx, some.from)
	if err != nil {
		return nil, nil, err
	}
	names, err := d.names(ctx, some.steps)
	if err != nil {
		return nil, nil, err
	}
	for _, st := range some.steps {
		if st.kind == stepAccept && st.to > stored[int(st.id[15])%drainLanes] {
			if name := names[st.event.AliasID]; name == "" || st.event.Alias != "" && st.event.Alias != name {
				d.foreign[st.id] = true
			}
		}
		if d.foreign[st.id] {
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

// stored reads how far the lanes are in a file; -1 for one that has not begun.
func (d *drainer) stored(ctx context.Context, from *segment) (to [drainLanes]int64, err error) {
	for i := range to {
		to[i] = -1
		var value []string
		if err := d.session(ctx).all(&value, `SELECT value FROM meta WHERE name = ?`, from.mark(i)); err != nil {
			return to, err
		}
		if len(value) > 0 {
			if to[i], err = strconv.ParseInt(value[0], 10, 64); err != nil {
				return to, fmt.Errorf("mark %s of the spool: %w", from.mark(i), err)
			}
		}
	}
	return to, nil
}

func (d *drainer) session(ctx context.Context) session {
	return session{ctx, d.s.write, &d.s.d, &d.s.clock}
}

// names gives the names of the aliases of new events.
func (d *drainer) names(ctx context.Context, steps []*step) (map[int64]string, error) {
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
