package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

func TestWhatIsKnownOfOpenOperations(t *testing.T) {
	history := []porcupine.Operation{
		operation(0, "append", 1, "", 1, 0),
		operation(1, "append", 2, "", 2, 0),
		operation(2, "read", 0, "[1]", 3, 9),
		operation(3, "read", 0, "[1]", 4, 7),
	}
	bounded := withBounds(history)
	if len(bounded) != 3 {
		t.Fatalf("a change that no read saw is left out: %v", bounded)
	}
	if bounded[0].Return != 7 {
		t.Errorf("it happened before the first answer that tells of it, at 7: %v", bounded[0])
	}
	if history[0].Return != math.MaxInt64 {
		t.Error("the history itself stays as it was")
	}
}

func TestOpenOperationsOfRegistersAndCountersStay(t *testing.T) {
	history := []porcupine.Operation{
		operation(0, "write", 1, "", 1, 0), operation(0, "increment", 1, "", 2, 0),
		operation(1, "read", 0, "2", 3, 4),
	}
	for _, one := range withBounds(history) {
		if one.Input.(input).kind != "read" && one.Return != math.MaxInt64 {
			t.Errorf("no read saw %v", one)
		}
	}
}

func TestOpenOperationsOfManyWritersAreJudged(t *testing.T) {
	var history []porcupine.Operation
	for value := int64(1); value <= 40; value++ {
		history = append(history, operation(int(value), "append", value, "", value, 0))
	}
	history = append(history, operation(0, "read", 0, "[7,3,9]", 50, 51), operation(0, "read", 0, "[7,3]", 52, 53))
	if porcupine.CheckOperations(document, withPlaces(withBounds(history))) {
		t.Error("an element that was seen and is gone")
	}
}

func TestAppendsOfOneMomentAreNotTriedInEveryOrder(t *testing.T) {
	const writers = 40
	seen := make([]int64, writers)
	var history []porcupine.Operation
	for value := int64(1); value <= writers; value++ {
		seen[writers-value] = value
		history = append(history, operation(int(value), "append", value, "", value, 100))
	}
	text, err := json.Marshal(seen)
	if err != nil {
		t.Fatal(err)
	}
	history = append(history, operation(0, "read", 0, string(text), 101, 102))
	if !porcupine.CheckOperations(document, withPlaces(history)) {
		t.Error("any order can have happened")
	}
}

// Right and wrong histories of bounded operations have the same verdict with bounds and without.
func TestBoundsChangeNoJudgement(t *testing.T) {
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewSource(seed))
	var judged [2]int
	for run := 0; run < 3000; run++ {
		history := randomHistory(chance)
		without := porcupine.CheckOperations(document, history)
		if with := porcupine.CheckOperations(document, withPlaces(withBounds(history))); with != without {
			t.Fatalf("seed %d, run %d: %v with bounds, %v without: %v", seed, run, with, without, history)
		}
		if without {
			judged[1]++
		} else {
			judged[0]++
		}
	}
	if judged[0] < 100 || judged[1] < 100 {
		t.Errorf("seed %d: %d wrong and %d right histories compare too little", seed, judged[0], judged[1])
	}
}

// A few operations on one document of a random kind. Each takes effect between call and response or, without a response,
// at any later moment or never; some responses are of a state that did not exist then.
func randomHistory(chance *rand.Rand) []porcupine.Operation {
	kind := []string{"write", "add", "append"}[chance.Intn(3)]
	type moment struct {
		at        int64
		operation porcupine.Operation
	}
	var moments []moment
	for number := int64(1); number <= 7; number++ {
		from := 1 + chance.Int63n(20)
		until := from + 1 + chance.Int63n(10)
		one := operation(int(number), kind, number, "", from, until)
		switch {
		case chance.Intn(2) == 0:
			one = operation(int(number), "read", 0, "", from, until)
		case chance.Intn(2) == 0:
			one, until = operation(int(number), kind, number, "", from, 0), 40
		}
		if asked := one.Input.(input); asked.kind == "write" && chance.Intn(2) == 0 {
			one.Input = input{kind: "swap", expected: 1 + chance.Int63n(7), value: asked.value}
		}
		moments = append(moments, moment{from + chance.Int63n(until-from+1), one})
	}
	slices.SortFunc(moments, func(a, b moment) int { return int(a.at - b.at) })
	states := []string{noRow}
	var history []porcupine.Operation
	for _, one := range moments {
		now := states[len(states)-1]
		asked := one.operation.Input.(input)
		if chance.Intn(6) == 0 {
			now = states[chance.Intn(len(states))]
		}
		if asked.kind == "read" {
			one.operation.Output = output{seen: now, done: true}
		} else if asked.kind == "swap" && one.operation.Return != math.MaxInt64 {
			one.operation.Output = output{done: now == fmt.Sprint(asked.expected)}
			if one.operation.Output.(output).done {
				states = append(states, fmt.Sprint(asked.value))
			}
		} else if one.at < 32 {
			_, next := document.Step(now, one.operation.Input, one.operation.Output)
			states = append(states, fmt.Sprint(next))
		}
		history = append(history, one.operation)
	}
	return history
}
