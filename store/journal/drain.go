package journal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"relay"
	"relay/store/db"
	"relay/store/spool"
)

const (
	drainSteps = 1024
	drainBytes = 4 << 20
	drainPause = 100 * time.Millisecond // wait before a round that failed is repeated
	closeDrain = 5 * time.Second        // longest time for draining the spool at a stop
	closeStuck = time.Second            // part of closeDrain that may pass without progress
)

// RecoverSpool writes the spool of an earlier process to the database, even if the spool is now turned off.
// It runs before the sweep, because the spool may hold the ends of attempts that the sweep would interrupt.
func (j *Journal) RecoverSpool(ctx context.Context) error {
	p, dir := j.spool, j.opt.DataDir
	if !p.Enabled() {
		switch {
		case dir == "" || !spool.Left(dir):
			return nil
		case !j.db.Dialect.SeveralNodes():
			j.log.Warn("the spool in the data dir belongs to another Postgres database; run relayd with that database and this data dir to store it",
				"dir", dir)
			return nil
		}
		options := p.Options
		options.Limit = 1 // a spool needs a limit, but no new step is put into this spool
		p = spool.New(options)
		defer func() { _ = p.Close() }() // the spool is empty, unless ctx ended
	}
	if err := p.LoadLeft(); err != nil {
		return err
	}
	if p.Active.Load() {
		j.log.Info("storing the spool of an earlier run", "bytes", p.Undrained.Load())
		return j.drain(ctx, p)
	}
	return j.db.Reconnect(ctx)
}

// DrainLoop writes the spool to the database whenever it is not empty.
func (j *Journal) DrainLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.spool.Wake:
		}
		if j.spool.Active.Load() {
			_ = j.drain(ctx, j.spool) // an error means that ctx ended: the rest is drained at the next start
		}
	}
}

// drainLast waits up to closeDrain for the spool to be drained before the store closes,
// unless the database does not answer or makes no progress.
func (j *Journal) drainLast() {
	deadline := time.Now().Add(closeDrain)
	for left, moved := j.spool.Undrained.Load(), time.Now(); j.spool.Active.Load() && !j.spool.Away.Load() && time.Now().Before(deadline); {
		<-time.After(drainPause)
		if now := j.spool.Undrained.Load(); now < left {
			left, moved = now, time.Now()
		} else if time.Since(moved) > closeStuck {
			return
		}
	}
}

// drain writes the spool to the database, in order, until it is empty or ctx ends.
func (j *Journal) drain(ctx context.Context, p *spool.Spool) error {
	d := newDrainer(j, p)
	for ctx.Err() == nil {
		done, err := d.round(ctx)
		p.Away.Store(err != nil && !done)
		switch {
		case done:
			var changes []relay.Change
			for id := range d.aliases {
				changes = append(changes, relay.Change{Kind: relay.ChangeQueue, Alias: id})
			}
			j.nodes.Publish(changes)
			if err == nil { // the file was removed durably, so its marks are no longer needed
				d.removeMarks(ctx)
			}
			return nil
		case err != nil:
			if !j.Serving() && db.Unavailable(err) != "" {
				d.logThrottled("postgres does not accept the steps of the spool; this node serves when they are stored", err)
			}
			_ = db.Pause(ctx, drainPause)
		}
	}
	return ctx.Err()
}

// removeMarks removes the rows of spool_marks in which this run noted the steps that it stored. It ignores
// errors, because DropExpired of retention removes rows that remain. It leaves rows of other names, which may
// belong to a copy of this data dir that is served elsewhere.
func (d *drainer) removeMarks(ctx context.Context) {
	if len(d.marks) == 0 {
		return
	}
	err := d.j.db.Update(ctx, "remove marks of the spool", func(c *db.Tx) error {
		_, err := c.ExecIn(`DELETE FROM spool_marks WHERE spool IN (?)`, slices.Sorted(maps.Keys(d.marks)))
		return err
	})
	if err != nil && ctx.Err() == nil && db.Unavailable(err) == "" {
		d.j.log.Debug("rows of spool_marks were not removed", "err", err)
	}
}

// drainer is one run of drain.
type drainer struct {
	j       *Journal
	p       *spool.Spool
	limit   int // largest number of steps in one batch
	aliases map[int64]bool
	foreign map[relay.ID]bool // events of other databases, see splitForeign
	marks   map[string]bool   // names of the rows of spool_marks that this run has changed
	aside   map[int64]bool    // numbers of the steps that this run has quarantined
	often   rate.Sometimes
}

func newDrainer(j *Journal, p *spool.Spool) *drainer {
	return &drainer{
		j: j, p: p, limit: drainSteps, aliases: map[int64]bool{}, foreign: map[relay.ID]bool{}, marks: map[string]bool{}, aside: map[int64]bool{}, often: rate.Sometimes{Interval: logInterval},
	}
}

// round writes one batch. After a failure the next round has fewer steps, because the batch may be too large for
// a slow database. A step is quarantined if the database refuses it in a batch of its own because of its data.
// done means that the spool is empty, even if its file could not be removed and err is not nil.
func (d *drainer) round(ctx context.Context) (done bool, err error) {
	rows, err := d.p.Next(d.limit, drainBytes)
	if err != nil {
		d.logThrottled("the spool cannot be read; its steps stay there and are tried again", err)
		return false, err
	}
	if len(rows) == 0 {
		if err := d.j.db.Reconnect(ctx); err != nil {
			return false, err
		}
		return d.p.MarkEmpty()
	}
	var steps []*step
	var refused []refusedStep
	for i := range rows {
		decoded, err := rows[i].Step()
		if err != nil {
			refused = append(refused, refusedStep{rows[i].Seq, spool.Refused{Reason: err.Error(), Data: rows[i].Data}})
			continue
		}
		steps = append(steps, &step{Step: *decoded, spooled: rows[i].Seq})
	}
	err = d.write(ctx, rows, steps, refused)
	switch {
	case errors.As(err, new(*asideError)):
		d.logThrottled("a step that postgres refuses cannot be quarantined; it stays in the spool and is tried again", err)
		return false, err
	case err == nil:
		d.limit = min(drainSteps, 2*d.limit)
	case len(rows) > 1:
		d.limit = len(rows) / 2
		if isDataError(err) {
			return false, nil
		}
		return false, d.logServerError(err)
	case !isDataError(err) || len(steps) == 0:
		return false, d.logServerError(err)
	default:
		if err := d.setAside(append(refused, refuse(steps[0], err.Error()))); err != nil {
			d.logThrottled("a step that postgres refuses cannot be quarantined; it stays in the spool and is tried again", err)
			return false, err
		}
	}
	d.p.Advance(rows)
	return false, nil
}

// refusedStep is a step of the spool that cannot be stored.
type refusedStep struct {
	seq int64
	spool.Refused
}

func refuse(st *step, reason string) refusedStep {
	return refusedStep{st.spooled, spool.Refuse(&st.Step, reason)}
}

// asideError is an error of quarantining steps.
type asideError struct{ error }

// setAside quarantines steps that cannot be stored: it writes each of them once, durably, to a file for the
// operator. Only then may they leave the spool.
func (d *drainer) setAside(steps []refusedStep) error {
	var news []spool.Refused
	for _, st := range steps {
		if !d.aside[st.seq] {
			news = append(news, st.Refused)
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := spool.Quarantine(d.p.Dir, news); err != nil {
		return &asideError{err}
	}
	for _, st := range steps {
		if !d.aside[st.seq] {
			d.aside[st.seq] = true
			d.p.Log.Error("a step of the spool cannot be stored; it stays in the data dir, until you remove it",
				"file", spool.RefusedFile, "step", st.seq, "event", st.Event, "kind", st.Kind, "err", st.Reason)
		}
	}
	return nil
}

// withoutEffect returns the steps of a batch that changed nothing: the steps of aliases that are not in this
// database, and the steps that failed. A step that failed because another node has taken over its attempt is not
// in the list.
func withoutEffect(known, foreign []*step) (list []refusedStep) {
	for _, st := range foreign {
		list = append(list, refuse(st, "its alias is not in this database"))
	}
	for _, st := range known {
		if st.err != nil && !errors.Is(st.err, relay.ErrFenced) {
			list = append(list, refuse(st, st.err.Error()))
		}
	}
	return list
}

// isDataError reports whether the database refuses a step because of its data. Other errors, such as a
// refused login or a missing table, can be repaired by an administrator, so the steps wait.
func isDataError(err error) bool { return db.Unavailable(err) == "" }

// logServerError logs err for the operator if the server returned it. It returns err.
func (d *drainer) logServerError(err error) error {
	if db.SQLState(err) != "" {
		d.logThrottled("postgres does not accept the steps of the spool; they are tried again until it does", err)
	}
	return err
}

// logThrottled logs the reason why the spool is not drained, at most once in logInterval.
func (d *drainer) logThrottled(what string, err error) {
	d.often.Do(func() { d.p.Log.Error(what, "dir", d.p.Dir, "err", err) })
}

// write makes a batch of the spool durable in one transaction: the parts of bodies, then the database rows that
// refer to them, and last the mark, which says up to which row of the spool all is done (table spool_marks).
// Steps without effect, and rows of the spool that cannot be read, are quarantined before the mark passes them.
func (d *drainer) write(ctx context.Context, rows []spool.Row, steps []*step, unread []refusedStep) error {
	began := time.Now()
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryLimit)
	defer cancel()
	name, last := d.j.opt.SpoolID+"/"+rows[0].Node, rows[len(rows)-1].Seq
	target := &writeTarget{db: d.j.db.Write, node: rows[0].Node, former: rows[0].Former, name: d.j.nodes.NodeName(), replaying: true}
	d.marks[name] = true
	changes, err := d.j.inBatch(try, target, func(w *writer) error {
		// Steps up to the mark are in the database: the result of their commit was lost, or the process was
		// killed right after it. They are not stored again, because that would bring back rows that were
		// removed after that commit. The INSERT locks the mark, and so waits for the end of an earlier
		// transaction whose result was lost.
		var mark int64
		if err := w.Get(&mark, `INSERT INTO spool_marks (spool, step) VALUES (?, 0)
			ON CONFLICT (spool) DO UPDATE SET step = spool_marks.step RETURNING step`, name); err != nil {
			return err
		}
		news := steps
		for len(news) > 0 && news[0].spooled <= mark {
			news[0].err, news = nil, news[1:]
		}
		if len(news) < len(steps) { // the first steps are in the database, but their commit got no answer, so their changes were never published
			w.Publish(relay.Change{Kind: relay.ChangeMissed})
		}
		known, foreign, err := d.splitForeign(w, news)
		if err != nil {
			return err
		}
		if err := d.j.putSteps(w, known); err != nil {
			return err
		}
		if last > mark {
			if err := d.setAside(append(unread, withoutEffect(known, foreign)...)); err != nil {
				return err
			}
		}
		w.Do(`UPDATE spool_marks SET step = ?, moved_at = ? WHERE spool = ? AND step < ?`, last, db.Micros(w.Now()), name, last)
		return nil
	})
	if err != nil {
		return err
	}
	// Changes of queues are published when the spool is empty, because a count before that misses the steps
	// that are still in the spool.
	changes = slices.DeleteFunc(changes, func(c relay.Change) bool {
		if c.Kind == relay.ChangeQueue {
			d.aliases[c.Alias] = true
		}
		return c.Kind == relay.ChangeQueue
	})
	d.j.nodes.Publish(changes)
	d.j.meter.recordBatch(len(steps), time.Since(began))
	return nil
}

// splitForeign separates the new events whose alias is not in the database, and their later steps. Either the
// alias was removed, or this is another database, in which the number of the alias may belong to another
// account.
func (d *drainer) splitForeign(w *writer, steps []*step) (known, foreign []*step, err error) {
	names := map[int64]string{}
	for _, st := range steps {
		if st.Kind == spool.Accept {
			names[st.Event.AliasID] = ""
		}
	}
	var rows []struct {
		ID   int64
		Name string
	}
	if len(names) > 0 {
		if err := w.AllIn(&rows, `SELECT id, name FROM aliases WHERE id IN (?)`, slices.Collect(maps.Keys(names))); err != nil {
			return nil, nil, err
		}
	}
	for _, r := range rows {
		names[r.ID] = r.Name
	}
	for _, st := range steps {
		if st.Kind == spool.Accept {
			if name := names[st.Event.AliasID]; name == "" || st.Event.Alias != "" && st.Event.Alias != name {
				d.foreign[st.ID] = true
			}
		}
		if d.foreign[st.ID] {
			foreign = append(foreign, st)
		} else {
			known = append(known, st)
		}
	}
	return known, foreign, nil
}
