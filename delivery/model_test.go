package delivery_test

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestModel takes random steps with relays whose tunnels, stores and processes fail and return. At the end it
// compares the stored events with each answer to a caller and with each request that the local server saw.
// RELAY_MODEL="first seed,sequences,steps" makes the test longer, and repeats a failure.
func TestModel(t *testing.T) {
	seed, sequences, steps, long := rand.Int63n(1e9), int64(25), int64(40), 3*time.Second
	if text := os.Getenv("RELAY_MODEL"); text != "" {
		given := strings.Split(text, ",")
		if len(given) != 3 {
			t.Fatalf("RELAY_MODEL=%q is not a seed, sequences and steps", text)
		}
		for i, to := range []*int64{&seed, &sequences, &steps} {
			n, err := strconv.ParseInt(given[i], 10, 64)
			if err != nil || n < 0 {
				t.Fatalf("RELAY_MODEL=%q: %q is no number", text, given[i])
			}
			*to = n
		}
		long = time.Hour
	}
	template := newTemplate(t)
	begun, ran := time.Now(), int64(0)
	for ; ran < sequences && (ran == 0 || time.Since(begun) < long); ran++ {
		seed := seed + ran
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dirs := t.TempDir()
			synctest.Test(t, func(t *testing.T) { runModel(t, template, dirs, seed, int(steps)) })
		})
	}
	t.Logf("%d sequences of %d steps ran; RELAY_MODEL=%d,%d,%d repeats them", ran, steps, seed, ran, steps)
}

func runModel(t *testing.T, template, dirs string, seed int64, steps int) {
	w := &model{
		t: t, rnd: rand.New(rand.NewSource(seed)), site: newSite(), dirs: dirs,
		deleted: map[int]bool{}, numbers: map[relay.ID]int{},
	}
	w.dir = w.copyDir(template)
	w.start()
	for range steps {
		w.step()
		if w.rnd.Intn(3) > 0 {
			time.Sleep(time.Duration(w.rnd.Intn(1500)) * time.Millisecond)
		}
	}
	w.say("heal")
	w.heal()
	w.slowStore.slow(0, 0)
	w.slowStore.read(true)
	w.site.set(siteAnswers)
	w.set(func(s *relay.Settings) { s.Paused = false })
	w.attach(false)
	w.settled()
	a, err := w.real.Alias(context.Background(), relay.System(), "hook")
	w.must(err)
	w.check(a.Settings.AutoDeliver)
	w.stop(time.Minute)
	if len(w.wrong) > 0 {
		t.Errorf("seed %d:\n%s\n\n%s", seed, strings.Join(w.log, "\n"), strings.Join(w.wrong, "\n"))
	}
}

// set changes settings of the alias.
func (w *model) set(f func(*relay.Settings)) {
	_, err := w.real.SetAlias(context.Background(), relay.System(), "hook", func(s *relay.Settings) error { f(s); return nil })
	if err != nil {
		w.say("settings not changed: %v", err)
	}
}

// step takes one random step.
func (w *model) step() {
	all := []struct {
		often int
		do    func()
	}{
		{12, w.stepSend},
		{6, w.stepTunnel},
		{3, w.stepSilence},
		{6, w.stepSite},
		{6, w.stepReplay},
		{4, w.stepRelease},
		{2, w.stepCancel},
		{3, w.stepSettings},
		{2, w.stepRestart},
		{3, w.stepStore},
		{1, w.stepDelete},
	}
	sum := 0
	for _, s := range all {
		sum += s.often
	}
	i := w.rnd.Intn(sum)
	for _, s := range all {
		if i -= s.often; i < 0 {
			s.do()
			return
		}
	}
}

func (w *model) stepSend() {
	size := 5
	if w.rnd.Intn(8) == 0 {
		size = 300 << 10
	}
	for range 1 + w.rnd.Intn(4) {
		w.say("send event %d, %d bytes", w.last+1, size)
		w.send(size)
	}
}

// stepTunnel attaches a tunnel, which may take over the alias, or ends the tunnel or an earlier connection.
func (w *model) stepTunnel() {
	l := w.link()
	switch i := w.rnd.Intn(6); {
	case l == nil || i < 2:
		lazy := w.rnd.Intn(3) == 0
		w.say("tunnel up, taking over %v, lazy %v", l != nil, lazy)
		w.attach(lazy)
	case i < 4:
		w.say("tunnel lost")
		l.lose()
		w.off = true
		time.Sleep(time.Duration(w.rnd.Intn(50)) * time.Millisecond)
		l.hold.Detach(false)
	case i < 5:
		w.say("forward canceled")
		w.off = true
		l.hold.Detach(true)
		d := time.Duration(w.rnd.Intn(5)) * time.Second
		w.busy.Go(func() { time.Sleep(d); l.lose() })
	default:
		w.say("an older connection dies")
		w.links[w.rnd.Intn(len(w.links))].lose()
		if l.gone() {
			w.off = true
			l.hold.Detach(false)
		}
	}
}

// stepSilence makes the tunnel stale or online, or makes its client silent or responsive.
func (w *model) stepSilence() {
	l := w.link()
	if l == nil {
		return
	}
	how := w.rnd.Intn(4)
	w.say("silence %d", how)
	switch how {
	case 0:
		l.hold.Stale()
	case 1:
		l.hold.Online()
	case 2:
		l.state.Lock()
		l.frozen = time.Now()
		l.state.Unlock()
	default:
		l.state.Lock()
		l.frozen = time.Time{}
		l.state.Unlock()
	}
}

func (w *model) stepSite() {
	modes := []string{
		siteAnswers, siteAnswers, siteSlow, siteRefuses, siteRefuses, siteHangs, siteBreaks, siteShortens, siteGarbage, siteUpgrades, siteEarly,
	}
	mode := modes[w.rnd.Intn(len(modes))]
	w.say("local server %s", mode)
	w.site.set(mode)
}

// some returns a random stored event and its number; 0 = none.
func (w *model) some() (id relay.ID, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.numbers) == 0 {
		return id, 0
	}
	number = 1 + w.rnd.Intn(w.last)
	for id, n := range w.numbers {
		if n == number {
			return id, n
		}
	}
	return id, 0
}

func (w *model) stepReplay() {
	id, number := w.some()
	wait := time.Duration(w.rnd.Intn(3)) * 5 * time.Second
	w.say("replay event %d", number)
	d, g := w.d, w.slowStore
	w.busy.Go(func() {
		_, n, err := d.Replay(context.Background(), relay.System(), id, wait)
		w.say("replay of event %d: attempt %d, %v", number, n, err)
		if _, _, dead := g.times(); dead || n == 0 || err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.promises = append(w.promises, promise{
			what: fmt.Sprintf("replayed as attempt %d", n), number: number, n: n,
			holds: func(_ *eventRow, a *attemptRow) bool { return a.kind == 1 && a.actor == "system" },
		})
	})
}

func (w *model) stepRelease() {
	d := w.d
	w.busy.Go(func() {
		n, err := d.Release(context.Background(), relay.System(), "hook")
		w.say("released %d, %v", n, err)
	})
}

func (w *model) stepCancel() {
	id, number := w.some()
	d := w.d
	w.busy.Go(func() {
		err := d.Cancel(context.Background(), relay.System(), id)
		w.say("cancel event %d: %v", number, err)
	})
}

func (w *model) stepSettings() {
	paused, auto := w.rnd.Intn(4) == 0, w.rnd.Intn(2) == 0
	w.say("paused %v, autoDeliver %v", paused, auto)
	w.set(func(s *relay.Settings) { s.Paused, s.AutoDeliver = paused, auto })
}

// stepRestart kills or stops the relay, and starts the next one on the same data.
func (w *model) stepRestart() {
	if w.rnd.Intn(2) == 0 {
		w.say("kill")
		w.kill()
	} else {
		drain := time.Duration(w.rnd.Intn(3)) * 5 * time.Second
		w.say("stop within %v", drain)
		w.stop(drain)
	}
	w.start()
	w.say("started")
}

// stepStore makes the store slow or failing, or makes its bodies unreadable, or makes it work again.
func (w *model) stepStore() {
	tables := []string{"attempts UPDATE", "attempts INSERT", "events INSERT", "events UPDATE", "payloads INSERT", "body_chunks INSERT"}
	switch w.rnd.Intn(6) {
	case 5:
		w.say("bodies cannot be read")
		w.slowStore.read(false)
	case 0:
		what := tables[w.rnd.Intn(len(tables))]
		w.say("store fails: %s", what)
		table, how, _ := strings.Cut(what, " ")
		w.fail(table, how)
	case 1:
		before, after := time.Duration(w.rnd.Intn(300))*time.Millisecond, time.Duration(w.rnd.Intn(300))*time.Millisecond
		w.say("store slow: %v, %v", before, after)
		w.slowStore.slow(before, after)
	default:
		w.say("store well")
		w.heal()
		w.slowStore.slow(0, 0)
		w.slowStore.read(true)
	}
}

func (w *model) stepDelete() {
	id, number := w.some()
	err := w.real.DeleteEvent(context.Background(), relay.System(), id)
	w.say("delete event %d: %v", number, err)
	if err == nil {
		w.mu.Lock()
		w.deleted[number] = true
		w.mu.Unlock()
	}
}
