package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Key      string          `json:"key"`
	Client   int             `json:"client"`
	Kind     string          `json:"kind"`
	Expected int64           `json:"expected"`
	Value    int64           `json:"value"`
	From     int             `json:"from"`
	To       int             `json:"to"`
	Mode     string          `json:"mode"`
	AtEnd    bool            `json:"at_end"`
	Seen     json.RawMessage `json:"seen"`
	Done     bool            `json:"done"`
	Call     int64           `json:"call_ns"`
	Return   *int64          `json:"return_ns"`
}

// answers counts the responses to clients. The reads at the end do not count: with them, a run in which every operation
// failed would look like one with results.
type answers struct{ reads, changes int }

// areEnough reports whether there are enough responses for a check.
func (seen answers) areEnough(least int) bool {
	return seen.reads > 0 && seen.changes > 0 && seen.reads+seen.changes >= least
}

func (seen *answers) count(one line) {
	switch {
	case one.Return == nil || one.AtEnd:
	case one.Kind == "read":
		seen.reads++
	default:
		seen.changes++
	}
}

// readHistory reads the operations on each document, and counts the responses.
func readHistory(path string) (map[string][]porcupine.Operation, answers, error) {
	var seen answers
	file, err := os.Open(path)
	if err != nil {
		return nil, seen, err
	}
	defer file.Close()
	histories := map[string][]porcupine.Operation{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<20)
	for number := 1; scanner.Scan(); number++ {
		var one line
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			return nil, seen, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		seen.count(one)
		operation := porcupine.Operation{
			ClientId: one.Client,
			Input: input{
				kind: one.Kind, expected: one.Expected, value: one.Value, from: one.From, to: one.To,
				mayBeOld: one.Kind == "read" && one.Mode != "majority",
			},
			Call:   one.Call,
			Output: output{seen: string(one.Seen), done: one.Done},
			Return: math.MaxInt64,
		}
		if one.Return != nil {
			operation.Return = *one.Return
		} else if one.Kind == "read" {
			// An operation without a response has no result.
			continue
		} else {
			operation.Output = output{unknown: true}
		}
		histories[one.Key] = append(histories[one.Key], operation)
	}
	return histories, seen, scanner.Err()
}
