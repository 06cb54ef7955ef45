# Defines set_up, which runs tools/setup.mjs and passes on the signals that would end this shell: by itself a shell ends, and the set-up goes
# on. Source it in the root of the checkout.
set_up() {
  node tools/setup.mjs "$@" &
  local child=$!
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child" || true; exit 143' TERM
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child" || true; exit 130' INT
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child" || true; exit 129' HUP
  local code=0
  wait "$child" || code=$?
  trap - TERM INT HUP
  return "$code"
}
