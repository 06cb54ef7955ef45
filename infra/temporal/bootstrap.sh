#!/bin/sh
# Registers the namespace and the search attributes of Longhaul's workflows. Existing ones stay unchanged. Uses the settings of the
# temporal command line: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_*, or a profile.
# NAMESPACE_RETENTION: how long closed workflows stay readable. The records of their runs stay in the store for ever.
set -eu

namespace=${TEMPORAL_NAMESPACE:-default}

tries=0
until temporal operator cluster health >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ "$tries" -ge 60 ]; then
    temporal operator cluster health
    exit 1
  fi
  sleep 2
done

if temporal operator namespace describe --namespace "$namespace" >/dev/null 2>&1; then
  echo "namespace $namespace is there"
else
  temporal operator namespace create --namespace "$namespace" --retention "${NAMESPACE_RETENTION:-30d}"
fi

# The server knows a new namespace only after a moment.
tries=0
until known=$(temporal operator search-attribute list --namespace "$namespace" 2>&1); do
  tries=$((tries + 1))
  if [ "$tries" -ge 30 ]; then
    echo "$known" >&2
    exit 1
  fi
  sleep 1
done

register() {
  case $known in
    *" $1 "*) echo "search attribute $1 is there" ;;
    *) temporal operator search-attribute create --namespace "$namespace" --name "$1" --type "$2" ;;
  esac
}

register RunName Keyword
register Project Keyword
register Model Keyword
register Phase Keyword
register Step Int
register PassAt1 Double
