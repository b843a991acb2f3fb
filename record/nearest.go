package record

import "strings"

// maxNearest bounds the length of words for which suggestions are made, because the time of a comparison
// grows with the length.
const maxNearest = 64

// Nearest returns the known word that a mistyped or truncated word most likely means, or "".
func Nearest(word string, known []string) string {
	if len(word) > maxNearest {
		return ""
	}
	for _, k := range known {
		if len(word) > 2 && strings.HasPrefix(strings.ToLower(k), strings.ToLower(word)) {
			return k
		}
	}
	best, found := len(word)/3+2, ""
	for _, k := range known {
		if d := distance(word, k); d < best {
			best, found = d, k
		}
	}
	return found
}

// distance returns the optimal string alignment distance: the number of letters inserted,
// deleted, replaced, or swapped with the next one. It ignores letter case.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if foldASCII(a[i-1]) == foldASCII(b[j-1]) {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && foldASCII(a[i-1]) == foldASCII(b[j-2]) && foldASCII(a[i-2]) == foldASCII(b[j-1]) {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

func foldASCII(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
