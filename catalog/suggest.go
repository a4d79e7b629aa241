package catalog

import (
	"cmp"
	"slices"
	"strings"
)

// maxSuggestions is the largest number of names offered for a wrong one.
const maxSuggestions = 10

// suggest returns at most n of names to offer for a wrong one: those that it
// resembles, the closest first, then others in the order of the alphabet. A
// model that picks the first of the list picks the best guess, and the rest
// reads like a list.
func suggest(name string, names []string, n int) []string {
	near := nearest(name, names, n)
	like := 0
	for like < len(near) && resembles(name, near[like]) {
		like++
	}
	slices.Sort(near[like:])
	return near
}

// resembles reports whether at most a third of name is wrong in candidate.
func resembles(name, candidate string) bool {
	return 3*distance(strings.ToLower(cut(name)), strings.ToLower(candidate)) <= max(len(cut(name)), len(candidate))
}

// nearest returns at most n of names, the closest to name first, and of equally
// close ones the first in the alphabet.
func nearest(name string, names []string, n int) []string {
	type scored struct {
		name string
		cost int
	}
	ranked := make([]scored, len(names))
	for i, candidate := range names {
		ranked[i] = scored{candidate, distance(strings.ToLower(cut(name)), strings.ToLower(candidate))}
	}
	slices.SortFunc(ranked, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), strings.Compare(a.name, b.name))
	})
	near := make([]string, 0, n)
	for _, r := range ranked[:min(n, len(ranked))] {
		near = append(near, r.name)
	}
	return near
}

// didYouMean offers the one name that a slip of the hand turns into name.
func didYouMean(name string, names []string) string {
	for _, candidate := range nearest(name, names, 1) {
		if distance(strings.ToLower(cut(name)), strings.ToLower(candidate)) <= 2 {
			return "; did you mean " + candidate + "?"
		}
	}
	return ""
}

// distance is Levenshtein's, over bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
