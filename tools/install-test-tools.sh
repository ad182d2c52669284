#!/bin/sh
# Install kcat, the command-line Kafka client that tests/compat drives. It is a Debian package and a program of its own,
# so pip cannot bring it. Where it cannot be installed the other tests still run, and those of kcat fail and say why.
set -u

if command -v kcat >/dev/null 2>&1; then
    exit 0
fi

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing kcat" >&2
    if { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends kcat; } \
        >/dev/null 2>&1 && command -v kcat >/dev/null 2>&1; then
        exit 0
    fi
    reason="apt-get could not install it"
else
    reason="installing it takes root and apt-get"
fi

echo "kcat is missing and $reason: the kcat tests will fail." >&2
echo "Install it yourself (Debian, Ubuntu: apt-get install kcat; macOS: brew install kcat) and run make test again." >&2
exit 0
