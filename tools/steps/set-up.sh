# Defines set_up, which runs tools/setup.mjs and passes on the signals that would end this shell: by itself a shell ends, and the set-up goes
# on. Source it in the root of the checkout.
say_kept() {
  echo 'The set-up was stopped. What is built is kept: the same command goes on with the rest.' >&2
}

set_up() {
  node tools/setup.mjs "$@" &
  local child=$!
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child" || true; say_kept; exit 143' TERM
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child" || true; say_kept; exit 130' INT
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child" || true; say_kept; exit 129' HUP
  local code=0
  wait "$child" || code=$?
  trap - TERM INT HUP
  return "$code"
}
