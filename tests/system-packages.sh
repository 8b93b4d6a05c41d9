#!/bin/sh
# Install the Debian packages that tests of real components use, where they are missing.
# Without root or apt-get nothing is installed: those tests are skipped and say so.
set -eu
missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need ip iproute2
need chromium chromium
need promtool prometheus
need systemd-nspawn systemd-container
need debootstrap debootstrap
need buildah buildah
need podman podman
need runc runc
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "Not installed (needs root and apt-get):$missing. The tests that use them will be skipped."
  exit 0
fi
echo "Installing for the tests:$missing"
log=$(mktemp)
# A package's service must not start on this machine: the tests start their own.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy && chmod +x $policy && made=yes
fi
trap '[ -z "$made" ] || rm -f $policy' EXIT
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
  tail -5 "$log" >&2
  echo "apt-get failed (the whole log: $log). The tests that use these packages will be skipped." >&2
fi
