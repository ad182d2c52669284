#!/bin/sh
# Install the programs that the tests drive and pip cannot bring: kcat, the command-line Kafka client (tests/compat),
# jq, which documents use (tests/documents), strace, which makes system calls fail or wait (tests/cluster), and chromium,
# the browser (tests/compat). Where one cannot be installed the other tests still run, and those that need it fail and
# say why.
set -u

missing=""
for tool in kcat jq strace chromium; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
missing="${missing# }"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing $missing" >&2
    # Unquoted on purpose: one word for each program.
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing; } \
        >/dev/null 2>&1
    reason="apt-get could not install it"
else
    reason="installing it takes root and apt-get"
fi

for tool in $missing; do
    command -v "$tool" >/dev/null 2>&1 && continue
    echo "$tool is missing and $reason: the tests that use it will fail." >&2
    echo "Install it yourself (Debian, Ubuntu: apt-get install $tool) and run make test again." >&2
done
exit 0
