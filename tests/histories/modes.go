package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// The operations that must be linearizable: all; or writes and majority reads, if other reads may be stale; or none, if a
// leader alone acknowledges writes, which may be lost with it.
const (
	judgeAll  = "all"
	judgeSure = "sure"
	judgeNone = "none"
)

// judged is the part of a history that must be linearizable.
func judged(history []porcupine.Operation, judge string) []porcupine.Operation {
	switch judge {
	case judgeAll:
		return history
	case judgeSure:
		return slices.DeleteFunc(slices.Clone(history), func(one porcupine.Operation) bool {
			return one.Input.(input).mayBeOld
		})
	default:
		return nil
	}
}

// implausible describes a result that is wrong in any mode: a value that was not requested by then, an element twice, more
// than the sum of the increments. Operations that certainly failed are in no history, so their values count as not requested.
func implausible(history []porcupine.Operation) string {
	if kindOf(history) == "transfer" {
		return unbalanced(history)
	}
	asked := map[int64]int64{} // By value: when it was asked for.
	for _, one := range history {
		if wanted := one.Input.(input); wanted.kind != "read" && wanted.kind != "increment" {
			asked[wanted.value] = one.Call
		}
	}
	for _, one := range history {
		if one.Input.(input).kind != "read" || one.Return == math.MaxInt64 {
			continue
		}
		if why := implausibleRead(history, asked, one); why != "" {
			return why
		}
	}
	return ""
}

func implausibleRead(history []porcupine.Operation, asked map[int64]int64, read porcupine.Operation) string {
	if kindOf(history) == "increment" {
		counted, _ := strconv.ParseInt(read.Output.(output).seen, 10, 64)
		begun := int64(0)
		for _, one := range history {
			if one.Input.(input).kind == "increment" && one.Call < read.Return {
				begun++
			}
		}
		if counted > begun {
			return fmt.Sprintf("%d of at most %d increments", counted, begun)
		}
		return ""
	}
	seen := map[int64]bool{}
	for _, value := range told(read) {
		if call, has := asked[value]; !has || call >= read.Return {
			return fmt.Sprintf("%d, which no operation had written", value)
		}
		if seen[value] {
			return fmt.Sprintf("%d twice", value)
		}
		seen[value] = true
	}
	return ""
}

// kindOf is the kind of changes of a document.
func kindOf(history []porcupine.Operation) string {
	for _, one := range history {
		switch kind := one.Input.(input).kind; kind {
		case "read":
		case "swap":
			return "write"
		default:
			return kind
		}
	}
	return "read"
}
