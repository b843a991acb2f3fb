package record_test

import (
	"slices"
	"testing"

	"relay/record"
)

func TestCompareHeaders(t *testing.T) {
	t.Parallel()
	type line = record.HeaderLine
	h := func(name, value string) record.Header { return record.Header{name, value} }
	for _, c := range []struct {
		name    string
		was, is []record.Header
		want    []line
	}{
		{"nothing", nil, nil, nil},
		{"the same", []record.Header{h("A", "1")}, []record.Header{h("A", "1")}, []line{{record.HeaderSame, "A", "1", false}}},
		{
			"noise and a change",
			[]record.Header{h("DATE", "1"), h("A", "1"), h("B", "1")},
			[]record.Header{h("DATE", "2"), h("A", "1"), h("B", "2")},
			[]line{
				{record.HeaderRemoved, "DATE", "1", true},
				{record.HeaderAdded, "DATE", "2", true},
				{record.HeaderSame, "A", "1", false},
				{record.HeaderRemoved, "B", "1", false},
				{record.HeaderAdded, "B", "2", false},
			},
		},
		{
			"unchanged noise is not marked",
			[]record.Header{h("Date", "1"), h("A", "1")},
			[]record.Header{h("Date", "1")},
			[]line{{record.HeaderSame, "Date", "1", false}, {record.HeaderRemoved, "A", "1", false}},
		},
		{
			"a line feed in a value",
			[]record.Header{h("A", "1\n\"x"), h("B", "1")},
			[]record.Header{h("A", "1\n\"y"), h("B", "1")},
			[]line{
				{record.HeaderRemoved, "A", "1\n\"x", false},
				{record.HeaderAdded, "A", "1\n\"y", false},
				{record.HeaderSame, "B", "1", false},
			},
		},
		{
			"values that differ only in bytes that are not UTF-8",
			[]record.Header{{"A", "\ufffd", "/w=="}},
			[]record.Header{{"A", "\ufffd", "/g=="}},
			[]line{{record.HeaderRemoved, "A", "\ufffd", false}, {record.HeaderAdded, "A", "\ufffd", false}},
		},
	} {
		got, ok := record.CompareHeaders(c.was, c.is)
		if !ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", c.name, got, ok)
		}
	}
	if _, ok := record.CompareHeaders(nil, make([]record.Header, 4001)); ok {
		t.Error("4001 lines are compared")
	}
}
