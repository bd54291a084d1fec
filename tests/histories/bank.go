package main

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// A bank is one document: a list of balances, opened by the first transfer. A transfer that its account cannot pay
// changes nothing. What is moved at most is what every account has at first, so that the first can always be paid.
const (
	accounts       = 10
	balanceAtFirst = 100
)

// transferred is what a bank holds after a transfer that was asked for, and whether something was moved.
func transferred(held string, asked input) (string, bool) {
	balances := elementsOf(held)
	if held == noRow {
		for range [accounts]int{} {
			balances = append(balances, balanceAtFirst)
		}
	}
	if max(asked.from, asked.to) >= len(balances) || balances[asked.from] < asked.value {
		return held, false
	}
	balances[asked.from] -= asked.value
	balances[asked.to] += asked.value
	return textOf(balances), true
}

// unbalanced says what a read saw of a bank that no transfers make of it, in whatever order: money that came or
// went, or a debt. A document is written as a whole: that must not be seen in any mode.
func unbalanced(history []porcupine.Operation) string {
	for _, one := range history {
		asked, got := one.Input.(input), one.Output.(output)
		if asked.kind != "read" || one.Return == math.MaxInt64 || got.seen == noRow {
			continue
		}
		sum, balances := int64(0), elementsOf(got.seen)
		for _, balance := range balances {
			sum += balance
			if balance < 0 {
				return fmt.Sprintf("an account with a debt in %s", got.seen)
			}
		}
		if len(balances) != accounts || sum != accounts*balanceAtFirst {
			return fmt.Sprintf("%s, which is %d in all", got.seen, sum)
		}
	}
	return ""
}
