# The commands of this project. Each includes its set-up, which costs nothing when it is complete. Build products are
# outside of the checkout, so that a new clone does not compile the storage engine again.
SHELL := /bin/bash
.DEFAULT_GOAL := help

CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rekindle
export CARGO_TARGET_DIR ?= $(CACHE)/target
export REKINDLE_CACHE := $(CACHE)
# tools/setup compiles RocksDB once per version, for all later builds of cargo.
ROCKSDB_VERSION := $(shell sed -n '/^name = "librocksdb-sys"/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)
export ROCKSDB_LIB_DIR ?= $(CACHE)/rocksdb-$(ROCKSDB_VERSION)
export ROCKSDB_STATIC := 1
CARGO := cargo
PROGRAM := $(CARGO_TARGET_DIR)/dist/rekindle

.PHONY: help env setup setup-test build run test report crash tidy fmt

help:
	@echo "make run     build and start a node on ./rekindle_data (ARGS='--flag ...' is passed on)"
	@echo "make test    run every test; the last line has the numbers that passed and failed"
	@echo "make report  run the published workloads on a new node, articles, and a sweep of 1, 2 and 4 nodes, and write report.html"
	@echo "make crash   run the long crash tests: kill -9 and power cuts, each 200 cycles with hard durability, 50 with soft"
	@echo "make tidy    only the style checks;  make fmt  format the code"

setup:
	@tools/setup build

setup-test:
	@tools/setup build test

build: setup
	@tools/build

run: build
	@exec $(PROGRAM) $(ARGS)

test: setup-test
	@$(CARGO) run --release --quiet --package xtask -- test

report: build
	@tools/setup report
	@$(CARGO) run --release --quiet --package xtask -- report --program $(PROGRAM)

crash: build
	@$(CARGO) run --release --quiet --package xtask -- crash --program $(PROGRAM)
	@$(CARGO) build --release --quiet --package rekindle-powercut-recorder
	@$(CARGO) run --release --quiet --package xtask -- crash --program $(PROGRAM) --power-cuts

tidy:
	@$(CARGO) run --release --quiet --package xtask -- tidy

fmt:
	@$(CARGO) fmt --all

env:
	@echo "export CARGO_TARGET_DIR=$(CARGO_TARGET_DIR) ROCKSDB_LIB_DIR=$(ROCKSDB_LIB_DIR) ROCKSDB_STATIC=1"
