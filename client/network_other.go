//go:build !linux

package client

import "context"

// networkHints hints at a change of the network until ctx ends.
func networkHints(ctx context.Context, hints chan<- struct{}) { pollHints(ctx, hints) }
