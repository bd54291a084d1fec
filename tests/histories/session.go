package main

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// backwards describes a read that went backwards for its client: an older state than one that it had read, or a state
// without its own acknowledged writes. A client sends one operation after another. Balances do not show whether a bank went
// backwards.
func backwards(history []porcupine.Operation) string {
	inOrder := slices.Clone(history)
	sort.SliceStable(inOrder, func(a, b int) bool { return inOrder[a].Call < inOrder[b].Call })
	begin := sessions[kindOf(history)]
	if begin == nil {
		return ""
	}
	open := map[int]session{}
	for _, one := range inOrder {
		if one.Return == math.MaxInt64 {
			continue
		}
		if open[one.ClientId] == nil {
			open[one.ClientId] = begin(history)
		}
		asked, got := one.Input.(input), one.Output.(output)
		if asked.kind != "read" {
			if got.done {
				open[one.ClientId].wrote(asked.value)
			}
		} else if !open[one.ClientId].read(got.seen) {
			return fmt.Sprintf("client %d went back to %s", one.ClientId, got.seen)
		}
	}
	return ""
}

// The state of a document that one client knows. read reports whether a result is at least as new.
type session interface {
	wrote(value int64)
	read(seen string) bool
}

var sessions = map[string]func([]porcupine.Operation) session{
	"write":     newRegisterSession,
	"increment": func([]porcupine.Operation) session { return &counterSession{} },
	"add":       func([]porcupine.Operation) session { return &elementsSession{} },
	"append":    func([]porcupine.Operation) session { return &elementsSession{isList: true} },
}

// Every value is written once: a replaced value does not return, and a value whose write ended before that of another began
// is not read after the other.
type registerSession struct {
	held   string
	left   map[string]bool
	writes map[string]porcupine.Operation
}

func newRegisterSession(history []porcupine.Operation) session {
	writes := map[string]porcupine.Operation{}
	for _, one := range history {
		if asked := one.Input.(input); asked.kind != "read" {
			writes[strconv.FormatInt(asked.value, 10)] = one
		}
	}
	return &registerSession{held: noRow, left: map[string]bool{}, writes: writes}
}

func (s *registerSession) wrote(value int64) { s.read(strconv.FormatInt(value, 10)) }

func (s *registerSession) read(seen string) bool {
	if seen == s.held {
		return true
	}
	before, hasBefore := s.writes[seen]
	after, hasAfter := s.writes[s.held]
	isBack := s.left[seen] || hasBefore && hasAfter && before.Return < after.Call
	s.left[s.held] = true
	s.held = seen
	return !isBack
}

type counterSession struct{ least int64 }

func (s *counterSession) wrote(by int64) { s.least += by }

func (s *counterSession) read(seen string) bool {
	number, err := strconv.ParseInt(seen, 10, 64)
	if err != nil {
		number = 0
	}
	isNoLess := number >= s.least
	s.least = number
	return isNoLess
}

// A list begins with every earlier result; of a set only the elements count.
type elementsSession struct {
	isList bool
	begins []int64
	known  []int64
}

func (s *elementsSession) wrote(value int64) { s.known = append(s.known, value) }

func (s *elementsSession) read(seen string) bool {
	elements := elementsOf(seen)
	isThere := func(value int64) bool { return slices.Contains(elements, value) }
	isNoLess := !slices.ContainsFunc(s.known, func(value int64) bool { return !isThere(value) })
	if s.isList {
		isNoLess = isNoLess && len(elements) >= len(s.begins) && slices.Equal(elements[:len(s.begins)], s.begins)
	}
	s.begins, s.known = elements, slices.Clone(elements)
	return isNoLess
}
