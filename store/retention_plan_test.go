package store

import (
	"testing"
	"time"
)

// What is remembered of aliases goes when they do.
func TestAliasesAreForgotten(t *testing.T) {
	t.Parallel()
	now, p := time.Now(), retentionSchedule{}
	if !p.due(now, 1, time.Hour) || p.due(now, 1, time.Hour) || !p.due(now, 1, 2*time.Hour) {
		t.Error("when an alias is due")
	}
	for range 5 {
		now = now.Add(maxRetentionInterval)
		p.due(now, 2, time.Hour)
		p.forget(now)
	}
	if _, there := p[2]; len(p) != 1 || !there {
		t.Errorf("planned are %v", p)
	}
}
