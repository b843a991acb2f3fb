package cli

import "relay/record"

// Disconnect is the last of the lines that are shown when a tunnel opens.
const Disconnect = "Press Ctrl+C to disconnect"

// ConnectedLine returns the first line of an opened tunnel; host is the host of the base URL.
func ConnectedLine(host string) string { return "Connected to relay " + host }

// OnlineLines returns the lines about an alias of the tunnel.
func OnlineLines(alias, url, target string) []string {
	return []string{"Alias " + alias + " is online", "Public URL    " + url, "Local target  " + target}
}

// Queued returns the message about the number of events that were queued while an alias was offline.
func Queued(events int) string {
	return record.Count(events, "event", "events") + " queued while offline"
}

// QueuedLine returns the message of Queued, followed by the command that delivers the events.
func QueuedLine(alias string, events int) string {
	return Queued(events) + "; press R or run: relay replay-queued " + alias
}
