package api

import (
	"container/list"
	"sync"
)

// recent is a map of at most most entries; the one longest unused goes first. It is
// safe for concurrent use.
type recent[V any] struct {
	most int

	mu    sync.Mutex
	byKey map[string]*list.Element
	order *list.List // of entry[V], most recently used first
}

type entry[V any] struct {
	key   string
	value V
}

func newRecent[V any](most int) *recent[V] {
	return &recent[V]{most: most, byKey: map[string]*list.Element{}, order: list.New()}
}

// get gives the entry of a key, made by make when there is none. A nil make makes
// none: then ok is false and V is zero.
func (r *recent[V]) get(key string, make func() V) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.byKey[key]; ok {
		r.order.MoveToFront(e)
		return e.Value.(entry[V]).value, true
	}
	if make == nil {
		return v, false
	}
	if r.order.Len() >= r.most {
		last := r.order.Back()
		delete(r.byKey, last.Value.(entry[V]).key)
		r.order.Remove(last)
	}
	v = make()
	r.byKey[key] = r.order.PushFront(entry[V]{key, v})
	return v, true
}

func (r *recent[V]) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len()
}
