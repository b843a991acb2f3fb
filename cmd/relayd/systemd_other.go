//go:build !linux

package main

import (
	"net"
	"time"
)

// serviceManager does nothing, because this system has no systemd.
type serviceManager struct{ watchdog time.Duration }

func newServiceManager(func(string) string) *serviceManager { return &serviceManager{} }

func (*serviceManager) present() bool                   { return false }
func (*serviceManager) notify(string, ...int) error     { return nil }
func (*serviceManager) keep(string, net.Listener) error { return nil }
func (*serviceManager) inherited(func(string) string) (map[string]net.Listener, error) {
	return nil, nil
}
