#!/bin/bash
# Runs a Python test with the strata binary, the engine and the models as Bazel built them:
# run_strata.sh PROGRAM ARGUMENT... becomes PROGRAM STRATA MODELS ARGUMENT...; -B: no cache of Python's
# beside its sources. Temporary files lie in the test's own folder; a test that leaves some has failed.
set -euo pipefail
root=$TEST_SRCDIR/$TEST_WORKSPACE
program=$1
shift
export STRATA_ENGINE=$root/lua/libstrata_engine.so STRATA_ARROW=$root/engine/data/libstrata_arrow.so
export STRATA_CACHE=$TEST_SRCDIR/digits STRATA_SHARE=$root HOME=$TEST_TMPDIR
export PYTHONPATH=$root/tests:$root/tests/differential  # what tests in folders share
readers=$TEST_SRCDIR/readers/folder.txt  # in the data of tests that read with others' packages
[[ ! -e $readers ]] || PYTHONPATH+=:$(<"$readers")
arrow=$TEST_SRCDIR/arrow/folder.txt  # of tests that write Parquet
[[ ! -e $arrow ]] || PYTHONPATH+=:$(<"$arrow")
export TMPDIR=$TEST_TMPDIR/temporary
mkdir -p "$TMPDIR"
/usr/bin/python3 -B "$root/$program" "$root/launcher/strata" "$root/models" "$@"
left=$(ls -A "$TMPDIR")
if [[ -n $left ]]; then
  echo "error: the test left in its temporary folder:" $left >&2
  exit 1
fi
