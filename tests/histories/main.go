// Reads a history of documents, one operation a line, and checks that each is linearizable as far as it must be (-judge),
// and that no read returned a value that is wrong in any mode. With -sessions it also checks that no client went backwards.
// With fewer responses to clients than -least nothing is checked.
//
// A line: {"key": text, "client": number, "kind": "read" | "write" | "swap" | "increment" | "add" | "append" |
// "transfer", "expected": number, "value": number, "from": number, "to": number, "mode": "majority" | "single" |
// "outdated", "at_end": bool, "seen": null, number or list, "done": bool, "call_ns": number, "return_ns": number or null}.
// Only a read has a mode and a result in seen (null without a row); one with at_end was made after the run, by no client. A
// swap writes value if the register is expected, a transfer moves value if the balance allows it; done reports whether it
// did. An operation without return_ns has an unknown result.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	judge := flag.String("judge", judgeAll, "what must be linearizable: all, sure or none")
	withSessions := flag.Bool("sessions", false, "no client may see less than it knew")
	least := flag.Int("least", 1, "so many operations of clients must have been answered")
	flag.Parse()
	if isKnown := *judge == judgeAll || *judge == judgeSure || *judge == judgeNone; flag.NArg() != 1 || !isKnown {
		fmt.Fprintln(os.Stderr, "usage: histories [-judge all|sure|none] [-sessions] [-least N] HISTORY")
		os.Exit(2)
	}
	histories, answered, err := readHistory(flag.Arg(0))
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
	if illegal+unknown+impossible > 0 {
		os.Exit(1)
	}
	if !answered.areEnough(*least) {
		fmt.Printf("not judged: of clients only %d reads and %d changes were answered, not %d together\n",
			answered.reads, answered.changes, *least)
		os.Exit(2)
	}
	fmt.Printf("judged: %d reads and %d changes of clients were answered\n", answered.reads, answered.changes)
}
