# The commands of this project. Each does its own set-up and can be run again at no cost.
# Build products live outside the checkout, so that a fresh clone does not compile the
# storage engine again.
SHELL := /bin/bash
.DEFAULT_GOAL := help

CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rekindle
export CARGO_TARGET_DIR ?= $(CACHE)/target
export REKINDLE_CACHE := $(CACHE)
# RocksDB is compiled once per version by tools/setup, whatever cargo is asked to build later.
ROCKSDB_VERSION := $(shell sed -n '/^name = "librocksdb-sys"/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)
export ROCKSDB_LIB_DIR ?= $(CACHE)/rocksdb-$(ROCKSDB_VERSION)
export ROCKSDB_STATIC := 1
CARGO := cargo
PROGRAM := $(CARGO_TARGET_DIR)/dist/rekindle

.PHONY: help env setup setup-test build run test report crash tidy fmt

help:
	@echo "make run     build and start a node on ./rekindle_data (ARGS='--flag ...' is passed on)"
	@echo "make test    every test, ending with what passed and failed"
	@echo "make report  a node of its own, the published workloads, a sweep of 1, 2 and 4 nodes, and report.html"
	@echo "make crash   the long crash test: 200 cycles hard, 50 soft"
	@echo "make tidy    the checks of style alone;  make fmt  lays the code out"

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
	@$(CARGO) run --release --quiet --package xtask -- report --program $(PROGRAM)

crash: build
	@$(CARGO) run --release --quiet --package xtask -- crash --program $(PROGRAM)

tidy:
	@$(CARGO) run --release --quiet --package xtask -- tidy

fmt:
	@$(CARGO) fmt --all

env:
	@echo "export CARGO_TARGET_DIR=$(CARGO_TARGET_DIR) ROCKSDB_LIB_DIR=$(ROCKSDB_LIB_DIR) ROCKSDB_STATIC=1"
