// Package record is the one outward form of the nouns: the JSON of events,
// attempts, aliases and problems, provider recognition, warnings, settings by
// name, and text that is safe to print.
package record
