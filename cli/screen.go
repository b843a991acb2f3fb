package cli

import "relay/record"

// Disconnect is the last of the lines that a tunnel begins with.
const Disconnect = "Press Ctrl+C to disconnect"

// ConnectedLine is the first line of a tunnel; host is that of the base URL.
func ConnectedLine(host string) string { return "Connected to relay " + host }

// OnlineLines are the lines of a tunnel about an alias.
func OnlineLines(alias, url, target string) []string {
	return []string{"Alias " + alias + " is online", "Public URL    " + url, "Local target  " + target}
}

// Queued says how many events of an alias were queued while it was offline.
func Queued(events int) string {
	return record.Count(events, "event", "events") + " queued while offline"
}

// QueuedLine says how to deliver them, behind the lines that a tunnel begins with.
func QueuedLine(alias string, events int) string {
	return Queued(events) + "; press R or run: relay replay-queued " + alias
}
