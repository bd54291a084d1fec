package main

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// A bank is one document: a list of balances, created by the first transfer. A transfer above the balance of its account
// changes nothing. The largest transfer is the initial balance of an account, so that the first transfer always succeeds.
const (
	accounts       = 10
	balanceAtFirst = 100
)

// transferred is the state of a bank after a requested transfer, and whether it was made.
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

// unbalanced describes a state of a bank that no transfers produce in any order: a changed sum, or a debt. A document is
// written as a whole, so no read in any mode may return that.
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
