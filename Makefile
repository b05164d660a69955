# A thin front for CMake: `make help` lists the targets.
#
# Variables: PORT, MODEL and ARGS go to the server (make run MODEL=my.gguf PORT=8080 ARGS="--threads 4"); PREFIX and
# DESTDIR to the installation; J is the number of build jobs; CMAKE_ARGS goes to every configuration.

PORT ?= 11435
MODEL ?= models/SmolLM2-135M-Instruct.Q4_1.gguf
ARGS ?=
PREFIX ?= /usr/local
J ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 60
FUZZ_TOTAL_SECONDS ?= 0
CMAKE_ARGS ?=

# Ninja where it is installed; a folder configured before keeps its generator.
generator = $(if $(wildcard build/$(1)/CMakeCache.txt),,$(if $(shell command -v ninja),-G Ninja))
configure = cmake --preset $(1) $(call generator,$(1)) $(2) $(CMAKE_ARGS) >build/$(1).log || { cat build/$(1).log; exit 1; }
build = cmake --build --preset $(1) -j $(J)

.DEFAULT_GOAL := all
.NOTPARALLEL:
.PHONY: all program everything run test lint asan tsan fuzz bench nightly install clean help deps-build deps-test deps-lint

all: deps-build program

# Configures and builds the release preset, and publishes the program as build/tempo9 in one rename.
program:
	@mkdir -p build
	@$(call configure,release,)
	@$(call build,release) --target tempo9
	@[ build/release/tempo9 -ef build/tempo9 ] || { \
	  ln -f build/release/tempo9 build/.tempo9.new && mv -f build/.tempo9.new build/tempo9; }

# The program, and the tests where cmocka is there.
everything: program
	@$(call build,release)

run: deps-build program
ifeq ($(MODEL),models/SmolLM2-135M-Instruct.Q4_1.gguf)
	@tools/get-deps model
endif
	@page='open that in a browser, or in another terminal'; \
	[ -d build/deps/web ] || page='ask it from another terminal (tools/get-deps web gets the page for browsers)'; \
	printf '%s\n' '' \
	  "tempo9 will listen on http://127.0.0.1:$(PORT) once the model is loaded: $$page:" '' \
	  '  curl -N http://127.0.0.1:$(PORT)/v1/chat/completions -H "Content-Type: application/json" \' \
	  "    -d '{\"model\": \"default\", \"stream\": true, \"temperature\": 0, \"max_tokens\": 60," \
	  "         \"messages\": [{\"role\": \"user\", \"content\": \"Name three colours.\"}]}'" '' \
	  'or a chat without the server:' '' \
	  '  build/tempo9 run $(MODEL)' '' \
	  'Ctrl-C stops the server.' ''
	@exec build/tempo9 serve --gguf '$(MODEL)' --port $(PORT) $(ARGS)

test: deps-test everything
	@cd build/release && ctest --output-on-failure --no-tests=error -j $(J) $(ARGS)

lint: deps-lint
	@tools/lint

asan: deps-test
	@mkdir -p build
	@$(call configure,asan,)
	@$(call build,asan)
	@cd build/asan && ctest --output-on-failure --no-tests=error -j $(J) $(ARGS)

tsan: deps-test
	@mkdir -p build
	@$(call configure,tsan,)
	@$(call build,tsan)
	@cd build/tsan && ctest --output-on-failure --no-tests=error -j $(J) $(ARGS)

fuzz: deps-build deps-lint
	@mkdir -p build
	@$(call configure,fuzz,-DT9_FUZZ_SECONDS=$(FUZZ_SECONDS) -DT9_FUZZ_TOTAL_SECONDS=$(FUZZ_TOTAL_SECONDS))
	@$(call build,fuzz)
	@cd build/fuzz && { ctest --output-on-failure --no-tests=error $(ARGS); rc=$$?; \
	  for f in findings/*; do [ ! -f "$$f" ] || echo "finding: build/fuzz/$$f, an input of the target that it is named after"; \
	  done; exit $$rc; }

bench: deps-build program
	@[ '$(MODEL)' != models/SmolLM2-135M-Instruct.Q4_1.gguf ] || tools/get-deps model
	@build/tempo9 bench --gguf '$(MODEL)' $(ARGS)

# What takes too long for every change: the tests and oracles at their full size (T9_FULL) with the default model, models
# of new shapes beside the reference library (where it is: tests/run/reference_seeds.py), each sanitizer over everything,
# and an hour of fuzzing, whose corpora stay in build/fuzz for the next night. All of it runs, whatever fails.
nightly: export T9_FULL := 1
nightly:
	@tools/get-deps model || echo 'nightly: no default model here; its tests are skipped'
	@tools/get-deps bfcl || echo 'nightly: no evaluator of tool calls here; its test is skipped'
	@tools/get-deps agents || echo 'nightly: no agents here; their test is skipped'
	@$(MAKE) --keep-going lint test asan tsan fuzz FUZZ_TOTAL_SECONDS=3600

install: program
	@$(call build,release) --target tempo9_libraries tempo9_docs
	@cmake --install build/release --prefix '$(PREFIX)'

deps-build:
	@tools/get-deps build

deps-test:
	@tools/get-deps test

deps-lint:
	@tools/get-deps lint

# The downloads (build/deps, build/test-env, models/) stay.
clean:
	@for d in build/*/CMakeCache.txt; do [ ! -f "$$d" ] || rm -rf "$$(dirname "$$d")"; done; rm -f build/tempo9 build/*.log

help:
	@printf '%s\n' \
	  'make            build build/tempo9 (gets what is missing first)' \
	  'make run        build, get the default model, serve it on 127.0.0.1:$(PORT)' \
	  'make test       build and run all tests' \
	  'make lint       include rules, source rules, formatting, clang-tidy' \
	  'make asan|tsan  all tests with the address and undefined-behaviour, or the thread sanitizer' \
	  'make fuzz       every fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)' \
	  'make bench      prefill and decode speed of MODEL' \
	  'make nightly    everything at its full size, and an hour of fuzzing' \
	  'make install    into PREFIX=$(PREFIX) (DESTDIR is honoured)' \
	  'make clean      remove what was built; downloads stay' '' \
	  'PORT, MODEL, ARGS, J can be set: make run MODEL=my.gguf PORT=8080 ARGS="--threads 4"'
