package main

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// The value of a document is kept as JSON without spaces: null without a row, a number for a register or a counter, a list
// of numbers for a list, an ascending one for a set.
const noRow = "null"

type input struct {
	kind            string
	expected, value int64
	// The accounts of a transfer.
	from, to int
	// Whether it is a read in a mode that may return an older state.
	mayBeOld bool
	// The position of the appended element in the list, from 1; 0 if unknown.
	place int
}

type output struct {
	seen    string
	done    bool
	unknown bool
}

// One document, of any kind.
var document = porcupine.Model{
	Init: func() interface{} { return noRow },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		held, asked, got := state.(string), in.(input), out.(output)
		switch asked.kind {
		case "read":
			return got.unknown || got.seen == held, held
		case "write":
			return true, strconv.FormatInt(asked.value, 10)
		case "swap":
			matches := held == strconv.FormatInt(asked.expected, 10)
			if !got.unknown && got.done != matches {
				return false, held
			}
			if matches {
				return true, strconv.FormatInt(asked.value, 10)
			}
			return true, held
		case "increment":
			return true, increment(held, asked.value)
		case "add":
			return true, withElement(held, asked.value, true)
		case "transfer":
			after, moved := transferred(held, asked)
			return got.unknown || got.done == moved, after
		default:
			if asked.place > 0 && len(elementsOf(held)) != asked.place-1 {
				return false, held
			}
			return true, withElement(held, asked.value, false)
		}
	},
}

func increment(held string, by int64) string {
	number, err := strconv.ParseInt(held, 10, 64)
	if err != nil {
		number = 0
	}
	return strconv.FormatInt(number+by, 10)
}

// The elements of a set or list; none of anything else.
func elementsOf(held string) []int64 {
	var elements []int64
	if json.Unmarshal([]byte(held), &elements) != nil {
		return nil
	}
	return elements
}

func withElement(held string, element int64, isSet bool) string {
	elements := append(elementsOf(held), element)
	if isSet {
		slices.Sort(elements)
		elements = slices.Compact(elements)
	}
	return textOf(elements)
}

func textOf(elements []int64) string {
	text, err := json.Marshal(elements)
	if err != nil {
		panic(err)
	}
	return string(text)
}
