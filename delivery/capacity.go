package delivery

import (
	"time"

	"relay"
	"relay/wire"
)

// capacityWait is how long a request waits for older events of its alias to go.
const capacityWait = 2 * time.Second

// checkCapacity says why a request cannot be kept, before a byte of it is forwarded; nil
// when it can. A chunked body counts 0 bytes here: its size is known only when it is stored.
func (d *Delivery) checkCapacity(in *relay.Inbound, h *wire.Head, wait time.Duration) *relay.Error {
	if d.opt.Capacity == nil {
		return nil
	}
	need := int64(len(in.Head))
	if h != nil {
		need += max(0, h.Length)
	}
	e := d.opt.Capacity(in.Alias.ID, need, wait)
	if e != nil && e.Code == relay.CodeStorageFull {
		d.counters.storageFull.Add(1)
	}
	return e
}
