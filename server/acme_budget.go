package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Bounds of new names, which CAs count by week and registered domain (Let's Encrypt:
// 50). Names that have a certificate are renewed whatever these say.
const (
	budgetWeek    = 7 * 24 * time.Hour
	budgetAccount = 20
	budgetTotal   = 40
	budgetFile    = "new-names.json"
)

// budget counts names that a certificate was ordered for, in a file, so that a
// restart forgets nothing. Safe for concurrent use.
type budget struct {
	file string
	mu   sync.Mutex
}

// ordered is one name within the file.
type ordered struct {
	Name    string    `json:"name"`
	Account int64     `json:"account"`
	At      time.Time `json:"at"`
}

// budgetError says that there is no room for a name yet.
type budgetError struct {
	detail string
	wait   time.Duration // until there may be
	ahead  bool          // there may be for names that somebody asks for
}

func (e *budgetError) Error() string { return e.detail }

func newBudget(dir string) *budget { return &budget{file: filepath.Join(dir, budgetFile)} }

// spend notes a name; a *budgetError where the week is used up, for the account or
// for all; half of the week where nobody has asked for the name yet (ahead). A name
// that stands there already costs nothing.
func (b *budget) spend(name string, account int64, now time.Time, ahead bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, err := b.read(now)
	if err != nil {
		return err
	}
	mostOwn, most := budgetAccount, budgetTotal
	if ahead {
		mostOwn, most = mostOwn/2, most/2
	}
	own, oldest, oldestOwn := 0, now, now
	for _, o := range list {
		if o.Name == name {
			return nil
		}
		if o.At.Before(oldest) {
			oldest = o.At
		}
		if o.Account == account {
			if own++; o.At.Before(oldestOwn) {
				oldestOwn = o.At
			}
		}
	}
	switch {
	case own >= mostOwn:
		return &budgetError{
			ahead:  ahead,
			detail: fmt.Sprintf("the account has had certificates for %d new names within a week", own),
			wait:   oldestOwn.Add(budgetWeek).Sub(now),
		}
	case len(list) >= most:
		return &budgetError{
			ahead:  ahead,
			detail: fmt.Sprintf("there were certificates for %d new names within a week; a wildcard certificate has no such bound", len(list)),
			wait:   oldest.Add(budgetWeek).Sub(now),
		}
	}
	return b.write(append(list, ordered{Name: name, Account: account, At: now.UTC()}))
}

// read gives the names of the last week. A file that cannot be understood counts as
// none: it is no reason to have no certificates.
func (b *budget) read(now time.Time) ([]ordered, error) {
	text, err := os.ReadFile(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all, list []ordered
	if json.Unmarshal(text, &all) != nil {
		return nil, nil
	}
	for _, o := range all {
		if age := now.Sub(o.At); age < budgetWeek && age > -budgetWeek {
			list = append(list, o)
		}
	}
	return list, nil
}

// write replaces the file as a whole.
func (b *budget) write(list []ordered) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(b.file+".new", b.file)
}
