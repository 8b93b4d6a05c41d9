#!/bin/sh
# Print the folder of a small Debian 12 with systemd and Python, made once and kept under .cache.
# The tests of systemd units boot it, the tests of images start from it. Needs root and debootstrap.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
packages=systemd,systemd-sysv,dbus,python3-venv,iproute2
root=$here/.cache/debian-12
if [ ! -e "$root/etc/debian_version" ]; then
  mkdir -p "$here/.cache"
  part=$root.$$
  trap 'rm -rf "$part"' EXIT
  debootstrap --variant=minbase --include=$packages bookworm "$part" > "$part.log" 2>&1 || {
    tail -5 "$part.log" >&2
    echo "debootstrap failed; the whole log: $part.log" >&2
    exit 1
  }
  rm -rf "$part"/var/cache/apt/archives/*.deb "$part"/var/lib/apt/lists/* "$part.log"
  rm -f "$part/etc/hostname" "$part/etc/resolv.conf" # debootstrap takes this machine's
  # Whoever finishes first has made it; the other throws its own away.
  mv -T "$part" "$root" 2>/dev/null || [ -e "$root/etc/debian_version" ]
fi
echo "$root"
