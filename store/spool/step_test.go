package spool

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"relay"
)

// Every field of a step survives encoding and decoding. The test sets fields by reflection, so that it covers
// fields that are added later.
func TestStepRoundTrip(t *testing.T) {
	t.Parallel()
	same := cmp.Options{
		cmpopts.EquateComparable(netip.AddrPort{}),
		cmpopts.IgnoreFields(Step{}, "Size"),
		cmpopts.IgnoreFields(relay.Attempt{}, "Node", "Cause", "Via"), // not in a step: Node comes from the claim, Cause from the response, and Via from BeginReplay
		// A mark is set only on an event that is in the database. HostRefusedBy, Cause and Ended are computed
		// when an event is read.
		cmpopts.IgnoreFields(relay.Event{}, "Mark", "HostRefusedBy", "Cause", "Ended"),
		cmpopts.IgnoreFields(relay.Message{}, "HeadOmitted"), // HeadOmitted says whether a read has left out the head
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		st := &Step{Event: &relay.Event{}, Attempt: &relay.Attempt{}}
		fill(t, rng, reflect.ValueOf(st.Event).Elem())
		fill(t, rng, reflect.ValueOf(st.Attempt).Elem())
		st.Kind, st.ID, st.N, st.I, st.State, st.Data = Kind(rng.IntN(5)), relay.ID{1, 2}, 3, 4, "failed", []byte("x")
		got, err := parseStep(appendStep(nil, st))
		if err != nil {
			t.Fatal(err)
		}
		if st.Kind == Amend {
			e := &relay.Event{ID: st.ID, Request: st.Event.Request, Signature: st.Event.Signature}
			for _, f := range taggedFields {
				reflect.ValueOf(e).Elem().Field(f.index).Set(reflect.ValueOf(st.Event).Elem().Field(f.index))
			}
			st.Event = e
		}
		if diff := cmp.Diff(st, got, same); diff != "" {
			t.Fatal(diff)
		}
	}
	whole := appendStep(nil, &Step{Event: &relay.Event{}, Attempt: &relay.Attempt{}, ID: relay.ID{1}})
	for n := range whole {
		if _, err := parseStep(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes of a step are taken for a step", n, len(whole))
		}
	}
	for _, st := range []*Step{{Kind: Requeue, N: 2}, {Kind: Accept, Event: &relay.Event{Target: []byte{}}}} {
		got, err := parseStep(appendStep(nil, st))
		if diff := cmp.Diff(st, got, same); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
}

// A field with the tag spool survives in the format of its tag, and is not in lower formats.
func TestTaggedFields(t *testing.T) {
	t.Parallel()
	type fields struct {
		B string `spool:"8"`
		A int    `spool:"7"`
		C int
	}
	tagged := taggedIn(reflect.TypeFor[fields]())
	for v, format := range map[fields]byte{{}: 0, {A: 5}: 7, {B: "x"}: 8, {A: 5, B: "x"}: 8} {
		first := coder{format: stepFormat}
		if first.tagged(&v, tagged); first.needed != format || len(first.b) > 0 {
			t.Errorf("%+v needs format %d, and has %d bytes in the first one", v, first.needed, len(first.b))
		}
		whole := coder{format: format}
		whole.tagged(&v, tagged)
		var got fields
		read := coder{b: whole.b, reading: true, format: format}
		if read.tagged(&got, tagged); got != v || read.err != nil || len(read.b) > 0 {
			t.Errorf("%+v became %+v, %v", v, got, read.err)
		}
	}
}

// fill gives every field a non-zero value where possible. Bodies are inline, because the Data of other
// bodies is not part of a step.
func fill(t *testing.T, rng *rand.Rand, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.UnixMicro(1 + rng.Int64N(1<<50)).UTC()
		return
	case *netip.AddrPort:
		*p = netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 2, 3, byte(rng.Uint32())}), 80)
		return
	case *relay.Body:
		*p = relay.Body{Data: []byte("body"), Stored: 4, Size: 9 + rng.Int64N(9), SHA256: [32]byte{1, 2}, State: "complete"}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, rng, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, rng, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(t, rng, v.Index(i))
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", rng.Uint32()))
	case reflect.Bool:
		v.SetBool(rng.IntN(4) > 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + rng.Int64N(1<<40))
	case reflect.Uint8:
		v.SetUint(1 + rng.Uint64N(200))
	default:
		t.Fatalf("a field of type %v", v.Type())
	}
}

// A step of kind Accept, Finish or Amend without its event or attempt is refused.
func TestStepThatLacksItsContentIsDamaged(t *testing.T) {
	t.Parallel()
	for kind := Accept; kind <= Requeue; kind++ {
		_, err := parseStep(appendStep(nil, &Step{Kind: kind}))
		if empty := kind != Accept && kind != Finish && kind != Amend; (err == nil) != empty {
			t.Errorf("a step of kind %d without event and attempt: %v", kind, err)
		}
	}
}

func FuzzStep(f *testing.F) {
	st := &Step{Kind: Finish, Attempt: &relay.Attempt{N: 1, Interim: [][]byte{[]byte("HTTP/1.1 103\r\n\r\n")}}}
	f.Add(appendStep(nil, st))
	f.Add(appendStep(nil, st)[:30])
	f.Fuzz(parseAnything)
}

// Randomly changed bytes are refused or decoded. This is not a fuzz test, because the fuzzer would also measure
// the coverage of the database engines, which is slow.
func TestStepGarbage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	st := &Step{Kind: Accept, Event: &relay.Event{Target: []byte("/"), Attempts: []relay.Attempt{{N: 1}}}}
	whole := appendStep(nil, st)
	for range 20_000 {
		b := slices.Clone(whole[:rng.IntN(len(whole)+1)])
		for range rng.IntN(4) {
			if len(b) > 0 {
				b[rng.IntN(len(b))] = byte(rng.Uint32())
			}
		}
		parseAnything(t, b)
	}
}

func parseAnything(t *testing.T, b []byte) {
	st, err := parseStep(b)
	if err != nil {
		return
	}
	again, err := parseStep(appendStep(nil, st))
	if err != nil || again.Kind != st.Kind || again.ID != st.ID {
		t.Fatalf("%+v became %+v, %v", st, again, err)
	}
}
