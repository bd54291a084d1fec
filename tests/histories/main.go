// Reads a history of documents, one operation a line, and says whether every one is linearizable.
//
// A line: {"key": text, "client": number, "kind": "read" | "write" | "swap" | "increment" | "add" | "append",
// "expected": number, "value": number, "seen": null, number or list, "done": bool, "call_ns": number,
// "return_ns": number or null}. Only a read has seen something (null for no row). A swap writes value if the
// register holds expected; done says whether it did. An operation without return_ns was begun and
// nobody knows what became of it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Key      string          `json:"key"`
	Client   int             `json:"client"`
	Kind     string          `json:"kind"`
	Expected int64           `json:"expected"`
	Value    int64           `json:"value"`
	Seen     json.RawMessage `json:"seen"`
	Done     bool            `json:"done"`
	Call     int64           `json:"call_ns"`
	Return   *int64          `json:"return_ns"`
}

func readHistory(path string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	histories := map[string][]porcupine.Operation{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<20)
	for number := 1; scanner.Scan(); number++ {
		var one line
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		operation := porcupine.Operation{
			ClientId: one.Client,
			Input:    input{kind: one.Kind, expected: one.Expected, value: one.Value},
			Call:     one.Call,
			Output:   output{seen: string(one.Seen), done: one.Done},
			Return:   math.MaxInt64,
		}
		if one.Return != nil {
			operation.Return = *one.Return
		} else if one.Kind == "read" {
			// Whoever did not see an answer saw nothing.
			continue
		} else {
			operation.Output = output{unknown: true}
		}
		histories[one.Key] = append(histories[one.Key], operation)
	}
	return histories, scanner.Err()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: histories HISTORY")
		os.Exit(2)
	}
	histories, err := readHistory(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	keys := make([]string, 0, len(histories))
	for key := range histories {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	operations, reads, unanswered, illegal, unknown := 0, 0, 0, 0, 0
	for _, key := range keys {
		for _, one := range histories[key] {
			operations++
			if one.Input.(input).kind == "read" {
				reads++
			}
			if one.Return == math.MaxInt64 {
				unanswered++
			}
		}
		switch porcupine.CheckOperationsTimeout(document, withPlaces(withBounds(histories[key])), time.Minute) {
		case porcupine.Illegal:
			illegal++
			fmt.Printf("key %s is not linearizable\n", key)
		case porcupine.Unknown:
			unknown++
			fmt.Printf("key %s took longer than a minute to judge\n", key)
		}
	}
	fmt.Printf("%d keys, %d operations, %d of them reads, %d without an answer: %d violations, %d unknown\n",
		len(keys), operations, reads, unanswered, illegal, unknown)
	// Without reads nothing can be wrong, and where hardly anything was answered nothing was seen.
	if reads == 0 || 2*unanswered > operations {
		fmt.Fprintln(os.Stderr, "too little was answered to judge")
		os.Exit(2)
	}
	if illegal+unknown > 0 {
		os.Exit(1)
	}
}
