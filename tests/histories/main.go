// Reads a history of documents, one operation a line, and says whether every one is linearizable, as far as it must be
// (-judge), and whether something was seen that must not be in any mode. With -sessions no client may go back, either.
//
// A line: {"key": text, "client": number, "kind": "read" | "write" | "swap" | "increment" | "add" | "append" |
// "transfer", "expected": number, "value": number, "from": number, "to": number, "mode": "majority" | "single" |
// "outdated", "seen": null, number or list, "done": bool, "call_ns": number, "return_ns": number or null}. Only a read
// has a mode and has seen something (null for no row). A swap writes value if the register holds expected, a transfer
// moves value if the account has it; done says whether it did. An operation without return_ns was begun and nobody
// knows what became of it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
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
	From     int             `json:"from"`
	To       int             `json:"to"`
	Mode     string          `json:"mode"`
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
	judge := flag.String("judge", judgeAll, "what must be linearizable: all, sure or none")
	withSessions := flag.Bool("sessions", false, "no client may see less than it knew")
	flag.Parse()
	if isKnown := *judge == judgeAll || *judge == judgeSure || *judge == judgeNone; flag.NArg() != 1 || !isKnown {
		fmt.Fprintln(os.Stderr, "usage: histories [-judge all|sure|none] [-sessions] HISTORY")
		os.Exit(2)
	}
	histories, err := readHistory(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	keys := make([]string, 0, len(histories))
	for key := range histories {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	operations, reads, unanswered, illegal, unknown, impossible := 0, 0, 0, 0, 0, 0
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
		why := implausible(histories[key])
		if why == "" && *withSessions {
			why = backwards(histories[key])
		}
		if why != "" {
			impossible++
			fmt.Printf("key %s was seen as it never may be: %s\n", key, why)
		}
		part := judged(histories[key], *judge)
		switch porcupine.CheckOperationsTimeout(document, withPlaces(withBounds(part)), time.Minute) {
		case porcupine.Illegal:
			illegal++
			fmt.Printf("key %s is not linearizable\n", key)
		case porcupine.Unknown:
			unknown++
			fmt.Printf("key %s took longer than a minute to judge\n", key)
		}
	}
	fmt.Printf("%d keys, %d operations, %d of them reads, %d without an answer: %d violations, %d unknown, %d impossible\n",
		len(keys), operations, reads, unanswered, illegal, unknown, impossible)
	// Without reads nothing can be wrong, and where hardly anything was answered nothing was seen.
	if reads == 0 || 2*unanswered > operations {
		fmt.Fprintln(os.Stderr, "too little was answered to judge")
		os.Exit(2)
	}
	if illegal+unknown+impossible > 0 {
		os.Exit(1)
	}
}
