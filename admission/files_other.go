//go:build !unix

package admission

// FileLimit returns 0, because the limit is unknown on this system.
func FileLimit() int { return 0 }
