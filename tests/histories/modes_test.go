package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// The balances of a bank of which only the first two accounts were used.
func bank(first, second string) string {
	return "[" + first + "," + second + ",100,100,100,100,100,100,100,100]"
}

func transfer(from, to int, value int64, done bool, call, until int64) porcupine.Operation {
	one := operation(0, "transfer", value, "", call, until)
	one.Input = input{kind: "transfer", from: from, to: to, value: value}
	if until != 0 {
		one.Output = output{done: done}
	}
	return one
}

func TestBanks(t *testing.T) {
	read := func(seen string, call int64) porcupine.Operation { return operation(1, "read", 0, seen, call, call+1) }
	cases := []struct {
		name            string
		can, isBalanced bool
		history         []porcupine.Operation
	}{
		{"a transfer is seen", true, true, []porcupine.Operation{
			read("null", 1), transfer(0, 1, 30, true, 3, 4), read(bank("70", "130"), 5),
		}},
		{"money that came from nowhere", false, false, []porcupine.Operation{
			transfer(0, 1, 30, true, 3, 4), read(bank("100", "130"), 5),
		}},
		{"a debt", false, false, []porcupine.Operation{
			transfer(0, 1, 60, true, 1, 2), transfer(0, 1, 60, true, 3, 4), read(bank("-20", "220"), 5),
		}},
		{"a transfer that could not be paid", true, true, []porcupine.Operation{
			transfer(0, 1, 60, true, 1, 2), transfer(0, 1, 60, false, 3, 4), read(bank("40", "160"), 5),
		}},
		{"a transfer that was refused and could be paid", false, true, []porcupine.Operation{
			transfer(0, 1, 60, true, 1, 2), transfer(0, 1, 30, false, 3, 4), read(bank("40", "160"), 5),
		}},
		{"a transfer that is gone", false, true, []porcupine.Operation{
			transfer(0, 1, 30, true, 1, 2), transfer(1, 0, 10, true, 3, 4), read(bank("70", "130"), 5),
		}},
		{"a transfer without an answer that happened later", true, true, []porcupine.Operation{
			transfer(0, 1, 30, true, 1, 2), transfer(0, 1, 10, true, 3, 0), read(bank("70", "130"), 4),
			read(bank("60", "140"), 6),
		}},
	}
	for _, one := range cases {
		if porcupine.CheckOperations(document, withPlaces(withBounds(one.history))) != one.can {
			t.Errorf("%s: judged the other way", one.name)
		}
		if why := implausible(one.history); (why == "") != one.isBalanced {
			t.Errorf("%s: %q", one.name, why)
		}
	}
}

func TestWhatIsSeenInNoMode(t *testing.T) {
	cases := []struct {
		name    string
		can     bool
		history []porcupine.Operation
	}{
		{"an old value", true, []porcupine.Operation{
			operation(0, "write", 1, "", 1, 2), operation(0, "write", 2, "", 3, 4), operation(1, "read", 0, "1", 5, 6),
		}},
		{"a value that no operation wrote, or that certainly failed", false, []porcupine.Operation{
			operation(0, "write", 1, "", 1, 2), operation(1, "read", 0, "3", 5, 6),
		}},
		{"a value before it was written", false, []porcupine.Operation{
			operation(1, "read", 0, "1", 1, 2), operation(0, "write", 1, "", 3, 4),
		}},
		{"a write without an answer", true, []porcupine.Operation{
			operation(0, "write", 1, "", 1, 0), operation(1, "read", 0, "1", 2, 3),
		}},
		{"less than was counted", true, []porcupine.Operation{
			operation(0, "increment", 1, "", 1, 2), operation(1, "read", 0, "null", 3, 4),
		}},
		{"more than was counted", false, []porcupine.Operation{
			operation(0, "increment", 1, "", 1, 0), operation(1, "read", 0, "2", 3, 4),
		}},
		{"an element twice", false, []porcupine.Operation{
			operation(0, "append", 1, "", 1, 2), operation(1, "read", 0, "[1,1]", 3, 4),
		}},
		{"an element that no operation added", false, []porcupine.Operation{
			operation(0, "add", 1, "", 1, 2), operation(1, "read", 0, "[1,2]", 3, 4),
		}},
	}
	for _, one := range cases {
		if why := implausible(one.history); (why == "") != one.can {
			t.Errorf("%s: %q", one.name, why)
		}
	}
}

func TestOnlyWhatMustBeIsJudged(t *testing.T) {
	old := operation(1, "read", 0, "1", 5, 6)
	old.Input = input{kind: "read", mayBeOld: true}
	history := []porcupine.Operation{
		operation(0, "write", 1, "", 1, 2), operation(0, "write", 2, "", 3, 4), old,
	}
	lost := append(history, operation(1, "read", 0, "1", 7, 8))
	cases := []struct {
		judge   string
		history []porcupine.Operation
		can     bool
	}{
		{judgeAll, history, false}, {judgeSure, history, true}, {judgeSure, lost, false}, {judgeNone, lost, true},
	}
	for number, one := range cases {
		if porcupine.CheckOperations(document, judged(one.history, one.judge)) != one.can {
			t.Errorf("case %d: judged the other way", number)
		}
	}
}

func TestClientsThatGoBack(t *testing.T) {
	cases := []struct {
		name    string
		goes    bool
		history []porcupine.Operation
	}{
		{"a register that goes on", false, []porcupine.Operation{
			operation(0, "read", 0, "null", 1, 2), operation(0, "write", 1, "", 3, 4), operation(0, "read", 0, "1", 5, 6),
			operation(1, "write", 2, "", 5, 7), operation(0, "read", 0, "2", 8, 9),
		}},
		{"a register that was read as before", true, []porcupine.Operation{
			operation(1, "write", 1, "", 1, 2), operation(1, "write", 2, "", 3, 4),
			operation(0, "read", 0, "2", 5, 6), operation(0, "read", 0, "1", 7, 8),
		}},
		{"a register without its own write", true, []porcupine.Operation{
			operation(1, "write", 1, "", 1, 2), operation(0, "read", 0, "1", 3, 4),
			operation(0, "write", 2, "", 5, 6), operation(0, "read", 0, "1", 7, 8),
		}},
		{"two clients that do not know of each other", false, []porcupine.Operation{
			operation(1, "write", 1, "", 1, 2), operation(0, "read", 0, "null", 3, 4),
		}},
		{"a write without an answer that is not there", false, []porcupine.Operation{
			operation(0, "write", 1, "", 1, 0), operation(0, "read", 0, "null", 3, 4),
		}},
		{"a counter without an own increment", true, []porcupine.Operation{
			operation(1, "increment", 1, "", 1, 2), operation(0, "read", 0, "1", 3, 4),
			operation(0, "increment", 1, "", 5, 6), operation(0, "read", 0, "1", 7, 8),
		}},
		{"a set that lost what was read", true, []porcupine.Operation{
			operation(1, "add", 1, "", 1, 2), operation(0, "read", 0, "[1]", 3, 4), operation(0, "read", 0, "[2]", 5, 6),
		}},
		{"a set with one before the others", false, []porcupine.Operation{
			operation(1, "add", 2, "", 1, 2), operation(0, "read", 0, "[2]", 3, 4), operation(0, "read", 0, "[1,2]", 5, 6),
		}},
		{"a list that begins otherwise", true, []porcupine.Operation{
			operation(1, "append", 2, "", 1, 2), operation(0, "read", 0, "[2]", 3, 4), operation(0, "read", 0, "[1,2]", 5, 6),
		}},
		{"a list without what its client appended", true, []porcupine.Operation{
			operation(0, "append", 1, "", 1, 2), operation(0, "read", 0, "[2]", 3, 4),
		}},
	}
	for _, one := range cases {
		if why := backwards(one.history); (why != "") != one.goes {
			t.Errorf("%s: %q", one.name, why)
		}
	}
}
