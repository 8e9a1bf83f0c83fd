# Shared by the scripts here: the paths of folders, and the display of the steps of a set-up. Sourced by bash.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
cache=${STRATA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/strata}  # shared by all checkouts
private=$root/.cache                                           # of this checkout: logs, stamps

# step NAME  begins a step. Steps are shown on stderr, one line each, so that the output of `strata plan --json` stays
# clean.
step() {
  step_name=$1 step_start=$SECONDS step_shown=$SECONDS
  progress ""
}

# progress TEXT  rewrites the step's line; without a terminal, one line a minute.
progress() {
  if [[ -t 2 ]]; then
    printf '\r\033[K  %-10s %s' "$step_name" "$1" >&2
  elif ((SECONDS - step_shown >= 60)); then
    step_shown=$SECONDS
    printf '  %-10s %s\n' "$step_name" "$1" >&2
  fi
}

# step_done TEXT  ends the step's line with what was done and its time.
step_done() {
  [[ -t 2 ]] && printf '\r\033[K' >&2
  printf '  %-10s %s, %d s\n' "$step_name" "$1" $((SECONDS - step_start)) >&2
}

# fail TEXT...  prints the texts, one a line, and exits with an error.
fail() {
  [[ -t 2 && -n ${step_name:-} ]] && printf '\r\033[K' >&2
  printf 'error: %s\n' "$1" >&2
  (($# > 1)) && printf '  %s\n' "${@:2}" >&2
  exit 1
}

# run_bazel LOG COMMAND ARGUMENT...  runs Bazel. Its output goes to a log; its progress is shown.
run_bazel() {
  local log=$1 command=$2
  shift 2
  (cd "$root" && tools/bazel "$command" --curses=no --color=no --show_progress_rate_limit=1 "$@") \
    </dev/null 2>&1 | tee "$log" | bazel_progress
  return "${PIPESTATUS[0]}"
}

# Shows the progress in Bazel's output. Its lines are `[actions done / known] what; how long` or
# `[...] 3 / 24 tests; what; how long`.
bazel_progress() {
  local line
  while IFS= read -r line; do
    if [[ $line =~ ^\[[0-9,]+\ /\ [0-9,]+\]\ ([0-9,]+)\ /\ ([0-9,]+)\ tests(,[^;]*)?(;\ ([^;]*))? ]]; then
      progress "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} done  ${BASH_REMATCH[5]:0:55}"
    elif [[ $line =~ ^\[([0-9,]+)\ /\ ([0-9,]+)\]\ ([^;]*) ]]; then
      progress "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}  ${BASH_REMATCH[3]:0:55}"
    elif [[ $line == Another\ command* ]]; then
      progress "waiting for another Bazel in this checkout"
    fi
  done
}

# bazel_messages LOG  prints only those messages of Bazel that are about failures.
bazel_messages() {
  sed -E -e '/^(INFO|DEBUG|Loading|Analyzing|Starting local|FAILED: Build|Use --|Executed)/d' \
    -e '/^\[[0-9,]+ \/ [0-9,]+\]/d' -e '/^\/\/.* PASSED/d' -e 's/: error executing command .*//' \
    "$1" >&2
}
