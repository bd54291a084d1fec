package main

import (
	"math"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// withBounds says when an operation without an answer happened at the latest, where that can be known.
//
// A judge must think of every moment for each operation that stays open, and of its never having happened: the
// time that takes doubles with each. But clients write every value once, so who saw a value saw that
// operation: it happened before the first such answer. (Increments and transfers have no value of their own.) And an element of a set or list that nobody ever saw
// was added after the last answered read, or not at all: it explains nothing and is left out.
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
			// Nobody sees what is not asked for yet: such a history is left to the judge as it is.
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

// The values that an answer tells of.
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

// withPlaces says of each append which element of the list it made, as far as the longest list that anybody saw
// tells: without that the judge tries appends of the same moment in every order. Lists that are not all the
// beginning of one are left to the judge as they are, and so is one with an element twice.
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
