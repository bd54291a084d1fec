package main

import (
	"math"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// withBounds gives operations without a response the latest time at which they took effect, if that can be known.
//
// The checker has to consider every moment for each open operation, and that it had no effect: the time for that doubles
// with each. But clients write every value once, so a read of a value proves its operation, which took effect before the
// first such response. (Increments and transfers have no unique value.) An element of a set or list that no read returned
// was added after the last read with a response, or not at all: it explains nothing and is left out.
func withBounds(history []porcupine.Operation) []porcupine.Operation {
	seen := map[int64]int64{} // By value: when the first answer came that tells of it.
	for _, one := range history {
		if one.Return == math.MaxInt64 {
			continue
		}
		for _, value := range told(one) {
			if first, has := seen[value]; !has || one.Return < first {
				seen[value] = one.Return
			}
		}
	}
	bounded := make([]porcupine.Operation, 0, len(history))
	for _, one := range history {
		asked := one.Input.(input)
		if one.Return == math.MaxInt64 && asked.kind != "increment" && asked.kind != "transfer" {
			first, has := seen[asked.value]
			switch {
			// A value before its request is impossible: the checker gets such a history unchanged.
			case has && first > one.Call:
				one.Return = first
			case !has && (asked.kind == "add" || asked.kind == "append"):
				continue
			}
		}
		bounded = append(bounded, one)
	}
	return bounded
}

// The values in a result.
func told(one porcupine.Operation) []int64 {
	asked, got := one.Input.(input), one.Output.(output)
	switch asked.kind {
	case "swap":
		if got.done {
			return []int64{asked.expected}
		}
	case "read":
		if value, err := strconv.ParseInt(got.seen, 10, 64); err == nil {
			return []int64{value}
		}
		return elementsOf(got.seen)
	}
	return nil
}

// withPlaces gives each append its position in the longest list that a read returned: without that the checker tries
// concurrent appends in every order. It leaves a history unchanged if its lists are not all prefixes of one list, or if one
// has an element twice.
func withPlaces(history []porcupine.Operation) []porcupine.Operation {
	var longest []int64
	for _, one := range history {
		if seen := listOf(one); len(seen) > len(longest) {
			longest = seen
		}
	}
	places := map[int64]int{}
	for place, value := range longest {
		places[value] = place + 1
	}
	isBeginning := func(one porcupine.Operation) bool {
		seen := listOf(one)
		return slices.Equal(seen, longest[:len(seen)])
	}
	if len(places) < len(longest) || !all(history, isBeginning) {
		return history
	}
	placed := slices.Clone(history)
	for number, one := range placed {
		if asked := one.Input.(input); asked.kind == "append" {
			asked.place = places[asked.value]
			placed[number].Input = asked
		}
	}
	return placed
}

func listOf(one porcupine.Operation) []int64 {
	if one.Input.(input).kind != "read" {
		return nil
	}
	return elementsOf(one.Output.(output).seen)
}

func all(history []porcupine.Operation, is func(porcupine.Operation) bool) bool {
	return !slices.ContainsFunc(history, func(one porcupine.Operation) bool { return !is(one) })
}
