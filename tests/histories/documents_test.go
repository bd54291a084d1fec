package main

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
)

// One operation from call to response; `until` 0 without a response.
func operation(client int, kind string, value int64, seen string, from, until int64) porcupine.Operation {
	one := porcupine.Operation{
		ClientId: client, Input: input{kind: kind, value: value}, Call: from, Return: until,
		Output: output{seen: seen, done: true},
	}
	if until == 0 {
		one.Return, one.Output = math.MaxInt64, output{unknown: true}
	}
	return one
}

func TestWhatCanHaveHappened(t *testing.T) {
	cases := []struct {
		name    string
		can     bool
		history []porcupine.Operation
	}{
		{"a counter that counts", true, []porcupine.Operation{
			operation(0, "increment", 1, "", 1, 2), operation(1, "increment", 1, "", 1, 3),
			operation(0, "read", 0, "2", 4, 5),
		}},
		{"a counter that lost an increment", false, []porcupine.Operation{
			operation(0, "increment", 1, "", 1, 2), operation(1, "increment", 1, "", 1, 3),
			operation(0, "read", 0, "1", 4, 5),
		}},
		{"a counter that counted twice", false, []porcupine.Operation{
			operation(0, "increment", 1, "", 1, 2), operation(0, "read", 0, "2", 4, 5),
		}},
		{"an increment without an answer that happened later", true, []porcupine.Operation{
			operation(0, "increment", 1, "", 1, 0), operation(1, "read", 0, "null", 2, 3),
			operation(1, "read", 0, "1", 4, 5),
		}},
		{"a set, whatever the order", true, []porcupine.Operation{
			operation(0, "add", 7, "", 1, 3), operation(1, "add", 5, "", 1, 3),
			operation(0, "read", 0, "[5,7]", 4, 5),
		}},
		{"a set that lost an element", false, []porcupine.Operation{
			operation(0, "add", 7, "", 1, 3), operation(1, "add", 5, "", 1, 3),
			operation(0, "read", 0, "[5]", 4, 5),
		}},
		{"two readers who saw two orders of one list", false, []porcupine.Operation{
			operation(0, "append", 1, "", 1, 9), operation(1, "append", 2, "", 1, 9),
			operation(2, "read", 0, "[1,2]", 10, 11), operation(3, "read", 0, "[2,1]", 10, 11),
		}},
		{"a list read again without its end", false, []porcupine.Operation{
			operation(0, "append", 1, "", 1, 2), operation(0, "append", 2, "", 3, 9),
			operation(1, "read", 0, "[1,2]", 4, 5), operation(1, "read", 0, "[1]", 6, 7),
		}},
		{"a register read stale", false, []porcupine.Operation{
			operation(0, "write", 1, "", 1, 2), operation(0, "write", 2, "", 3, 4),
			operation(1, "read", 0, "1", 5, 6),
		}},
	}
	for _, one := range cases {
		if porcupine.CheckOperations(document, one.history) != one.can {
			t.Errorf("%s: judged the other way", one.name)
		}
	}
}
