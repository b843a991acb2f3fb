package server

import (
	"strconv"
	"testing"
)

// Each of very many tunnels that came at once had a goroutine of its own that waited
// for its turn at the CA.
func TestOrdersAheadAreBounded(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	a.mu.Lock()
	for i := range mostOrders {
		a.orders[strconv.Itoa(i)] = &order{running: make(chan struct{})}
	}
	a.mu.Unlock()
	a.Online("good")
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.orders) > mostOrders {
		t.Error("one more was taken")
	}
}
