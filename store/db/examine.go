package db

import "relay"

// OKFinding returns the result of a check that found nothing wrong.
func OKFinding(format string, args ...any) relay.Finding {
	return relay.Findingf(relay.VerdictOK, "", format, args...)
}

// UnknownFinding returns the result of a check that could not be done.
func UnknownFinding(err error) relay.Finding {
	return relay.Findingf(relay.VerdictFail, "see whether the database answers, then run relayd doctor again", "the check could not be done: %v", err)
}

// ExamineHandle returns the handle for checks, which may take long.
func (s *DB) ExamineHandle() querier {
	if s.Dialect.Remote() {
		return s.Slow
	}
	return s.Read
}

// ExamineDurability checks the settings that make a commit survive a power loss.
func (s *DB) ExamineDurability(q Query) relay.Finding { return s.Dialect.examineDurability(s, q) }

// ExamineDisk checks the free space of the disk of the database.
func (s *DB) ExamineDisk(Query) relay.Finding { return s.Dialect.examineDisk(s) }

// ExaminePages checks that the file of the database is not damaged.
func (s *DB) ExaminePages(q Query) relay.Finding { return s.Dialect.examinePages(q) }

// durabilitySetting is a setting that makes a commit survive a power loss: a query and the result that
// it must return.
type durabilitySetting struct{ query, want, fix string }

func examineSettings(q Query, settings ...durabilitySetting) relay.Finding {
	for _, set := range settings {
		var got string
		if err := q.Get(&got, set.query); err != nil {
			return UnknownFinding(err)
		}
		if got != set.want {
			return relay.Findingf(relay.VerdictFail, set.fix, "%s is %s, not %s: a power loss may lose events that were answered", set.query, got, set.want)
		}
	}
	return OKFinding("commits wait for the disk")
}
