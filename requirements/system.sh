#!/bin/sh
# Programs that tests and the race use for real and that no Python package brings. Installed when root; otherwise named.
# `system.sh soak` adds what only the soak tests use, `system.sh race-llm` what only that race does.
set -e
missing=""
for program in chromium redis-server nginx; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
if [ "${1:-}" = soak ]; then
    command -v promtool >/dev/null || missing="$missing prometheus"
fi
if [ "${1:-}" = race-llm ]; then
    command -v ss >/dev/null || missing="$missing iproute2"
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Please install what the tests need, as root: apt-get install$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -qq --yes --no-install-recommends $missing >/dev/null
