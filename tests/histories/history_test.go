package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadsAtTheEndAreNoAnswersOfClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	written := `{"key":"k0","client":0,"kind":"write","value":1,"call_ns":1,"return_ns":2,"done":true}
{"key":"k0","client":1,"kind":"write","value":2,"call_ns":1,"return_ns":null}
{"key":"k0","client":1,"kind":"read","mode":"majority","call_ns":3,"return_ns":4,"seen":1}
{"key":"k0","client":1,"kind":"read","mode":"majority","call_ns":5,"return_ns":null}
{"key":"k0","client":5,"kind":"read","mode":"majority","at_end":true,"call_ns":7,"return_ns":8,"seen":1}
{"key":"k0","client":6,"kind":"read","mode":"majority","at_end":true,"call_ns":7,"return_ns":8,"seen":1}
`
	if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	histories, answered, err := readHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	if answered != (answers{reads: 1, changes: 1}) {
		t.Errorf("%+v", answered)
	}
	// These operations are checked, too, and so are those without a response.
	if len(histories["k0"]) != 5 {
		t.Errorf("%d operations", len(histories["k0"]))
	}
	for least, enough := range map[int]bool{1: true, 2: true, 3: false} {
		if answered.areEnough(least) != enough {
			t.Errorf("of at least %d", least)
		}
	}
	if (answers{reads: 9}).areEnough(1) || (answers{changes: 9}).areEnough(1) {
		t.Error("changes without reads, or reads without changes")
	}
}
