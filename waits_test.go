package relay_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// harmlessWaits are the functions that limit a wait without package waits. If the process was suspended for
// longer than such a limit, the limit is over although the other side may have acted in time. The title of each
// group says why this does no harm.
var harmlessWaits = map[string][]string{
	"a pause, or a task for later: nothing else ends it": {
		"delivery.dispatcher.sleep", "delivery/feed.Feed.start", "delivery/feed.viewer.Next", "delivery/kept.New", "delivery/limiter.Limiter.armTimer",
		"delivery/registry.Registry.KeepCounts", "delivery/spares.New", "link.Conn.guard", "link.NewWorkers", "link.reads.start",
		"server/certs.ACME.run",
	},
	"it waits for a goroutine of this process": {
		"delivery/exchange.run.joinSender", "delivery/exchange.run.tunnelEnded", "delivery/exchange.run.tunnelLost",
	},
	"it is tried again": {
		"delivery.Delivery.Publish", "delivery/feed.Feed.round", "delivery/feed.viewer.learn", "delivery/registry.Registry.announceQueues",
		"delivery/registry.Registry.KeepTunnels", "delivery/registry.Registry.readTunnels", "delivery/registry.Registry.recountAll",
		"delivery/registry.Registry.reload", "delivery/registry.Registry.reloadAll", "delivery/registry.Registry.storeRequests",
		"delivery/registry.Registry.storeTunnels", "link.Socket.PeerCiphers",
	},
	"its end decides nothing, or something else judges it": {
		"delivery.Delivery.awaitAttempt",         // the answer says that the replay is running
		"delivery/exchange.sender.sendFirst",     // another goroutine sends the rest
		"delivery/exchange.sender.sendStored",    // the body is sent without 100 Continue
		"delivery/feed.Feed.add",                 // a credential expires at a fixed time of the clock
		"delivery/registry.Attachment.open",      // the next request finds the record of the tunnel
		"link.Conn.ending",                       // the end of the connection is seen in any case
		"delivery/exchange.run.panicked",         // after a panic, the attempt becomes interrupted in any case
		"link.Conn.startKeepalive",               // the timer only starts a check of the connection
		"link.deadline.set",                      // the code that sets a deadline judges its end
		"link.sender.Write",                      // asks waits.IsLate
		"delivery/exchange.newRun",               // makes the timer of onTime, which asks waits.IsLate
		"delivery.Delivery.FindAlias",            // the caller gets 404, as before the alias was made
		"delivery.Delivery.cancelUnanswered",     // if the limit is over, the log names the event that is still queued
		"delivery/exchange.Request.gatherStored", // a query of the database, which has its own limit
		"delivery/exchange.timedParts.BodyPart",  // a query of the database, which has its own limit
		"delivery/exchange.run.splice",           // removes a deadline
		"server.conn.deadline",                   // conn.read asks waits.IsLate
		"server.conn.handOver",                   // removes a deadline
		"server.conn.handshake",                  // its limit is one of waits; the other deadline only ends the connection of a CA
		"server.stallConn.armDeadline",           // stallConn.Write asks waits.IsLate
		"server.stallConn.SetDeadline",           // as stallConn.SetWriteDeadline
		"server.stallConn.SetWriteDeadline",      // the code that sets a deadline judges its end
		"server.Server.rejectConn",               // the write does not block
	},
	"it belongs to the dashboard and the API, or to a health check: nothing is lost, and the client may ask again": {
		"server.readiness.refresh", "server.readiness.verdict", "server.Server.serveBase", "server.stallReader.Read",
		"server.stallReader.setDeadline", "server.stallWriter.clearDeadline", "server.stallWriter.setDeadline",
	},
	"it belongs to a certificate: the next handshake or the next round of the loop asks again": {
		"server/certs.ACME.Certificate", "server/certs.ACME.obtain", "server/certs.ACME.pendingChallenge", "server/certs.DNSCommand.run",
	},
	"it belongs to the end of the process or of a connection": {
		"server.Server.awaitConns", "server.Server.beginStop", "server.Server.closeRemaining", "server.Server.Shutdown", "server/certs.ACME.Stop",
		"delivery.Delivery.awaitWorkers", "delivery.Delivery.Close", "link.batchWriter.Close", "link.calls.wait", "link.Conn.end", "link.endReader",
		"link.Socket.Close",
	},
}

// waitCalls are the functions and methods that limit a wait.
var waitCalls = []string{
	"time.After", "time.AfterFunc", "time.NewTimer", "context.WithTimeout", "context.WithDeadline", "SetDeadline", "SetReadDeadline", "SetWriteDeadline",
}

// TestWaitsOfRequests: in the packages between the listeners and the database, a limit of a wait is one of
// package waits, or harmlessWaits gives the reason why it need not be.
func TestWaitsOfRequests(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, dir := range []string{"delivery", "link", "server"} {
		for _, file := range programFiles(t, dir) {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && limitsWait(f.Body) {
					found[path.Dir(file)+"."+nameOf(f)] = true
				}
			}
		}
	}
	for _, names := range harmlessWaits {
		for _, name := range names {
			if !found[name] {
				t.Errorf("%s limits no wait any more: remove it from harmlessWaits", name)
			}
			delete(found, name)
		}
	}
	for name := range found {
		t.Errorf("%s limits a wait: use package waits, or add it to harmlessWaits", name)
	}
}

// programFiles returns the Go files below a folder, without tests.
func programFiles(t *testing.T, dir string) (files []string) {
	err := fs.WalkDir(os.DirFS("."), dir, func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// limitsWait reports whether a function calls one of waitCalls.
func limitsWait(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := s.Sel.Name
		if of, ok := s.X.(*ast.Ident); ok && (of.Name == "time" || of.Name == "context") {
			name = of.Name + "." + name
		}
		found = found || slices.Contains(waitCalls, name)
		return true
	})
	return found
}

// nameOf returns the name of a function, with the type of its receiver.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
