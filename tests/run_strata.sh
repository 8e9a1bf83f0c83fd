#!/bin/bash
# Runs a Python test with the strata binary, the engine and the models as Bazel built them:
# run_strata.sh PROGRAM ARGUMENT... becomes PROGRAM STRATA MODELS ARGUMENT...; -B: no cache of Python's
# beside its sources.
set -euo pipefail
root=$TEST_SRCDIR/$TEST_WORKSPACE
program=$1
shift
export STRATA_ENGINE=$root/lua/libstrata_engine.so
export STRATA_CACHE=$TEST_SRCDIR/digits HOME=$TEST_TMPDIR
exec /usr/bin/python3 -B "$root/$program" "$root/launcher/strata" "$root/models" "$@"
