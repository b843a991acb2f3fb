package main

import (
	"cmp"
	"slices"
)

// arrow means that the file from uses identifiers that the file to declares.
type arrow struct{ from, to string }

// ties returns the number of pairs of files with an arrow between them.
func ties(arrows map[arrow][]string) (n int) {
	for a := range arrows {
		if _, both := arrows[arrow{a.to, a.from}]; !both || a.from < a.to {
			n++
		}
	}
	return n
}

// upward returns the arrows from a file to an earlier one in an order.
func upward(files []string, arrows map[arrow][]string) (against []arrow) {
	for a := range arrows {
		if slices.Index(files, a.to) < slices.Index(files, a.from) {
			against = append(against, a)
		}
	}
	slices.SortFunc(against, func(a, b arrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return against
}

// layered returns an order with few upward arrows. It repeatedly takes the remaining file with the largest
// difference between the number of files that it uses and the number of files that use it (Eades, Lin and
// Smyth 1993), and then moves single files while that helps. The result may not be the best order, because
// finding it is NP-hard.
func layered(files []string, arrows map[arrow][]string) []string {
	left, order := slices.Clone(files), []string(nil)
	for len(left) > 0 {
		best, most := 0, -len(files)
		for i, f := range left {
			balance := 0
			for _, other := range left {
				balance += count(arrows, f, other) - count(arrows, other, f)
			}
			if balance > most {
				best, most = i, balance
			}
		}
		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	for improve(order, arrows) {
	}
	return order
}

func count(arrows map[arrow][]string, from, to string) int {
	if _, ok := arrows[arrow{from, to}]; ok {
		return 1
	}
	return 0
}

// improve moves each file to the place with the fewest upward arrows, and reports whether the number of
// upward arrows has fallen.
func improve(order []string, arrows map[arrow][]string) (better bool) {
	for i := range order {
		file, place, least, change := order[i], i, 0, 0
		for j := i - 1; j >= 0; j-- { // tries each earlier place; arrows between the file and file j change direction
			if change += count(arrows, order[j], file) - count(arrows, file, order[j]); change < least {
				place, least = j, change
			}
		}
		change = 0
		for j := i + 1; j < len(order); j++ { // tries each later place
			if change += count(arrows, file, order[j]) - count(arrows, order[j], file); change < least {
				place, least = j, change
			}
		}
		if place != i {
			without := slices.Delete(slices.Clone(order), i, i+1)
			copy(order, slices.Insert(without, place, file))
			better = true
		}
	}
	return better
}
