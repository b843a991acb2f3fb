//go:build !linux && !darwin

// Package powertest provides a disk for SQLite that can lose its power, for tests.
package powertest
