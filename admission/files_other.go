//go:build !unix

package admission

// FileLimit is not known on this system.
func FileLimit() int { return 0 }
