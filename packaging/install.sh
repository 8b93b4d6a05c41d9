#!/bin/sh
# Put units, users and example settings into place. Settings that are there already are left alone,
# nothing is enabled or started. Needs root; the program itself goes to /opt/aegis (see
# docs/how-to/install.md).
#   install.sh [DESTDIR]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
to=${1:-}

for unit in "$here"/systemd/*; do
  install -D -m 644 "$unit" "$to/etc/systemd/system/$(basename "$unit")"
done
install -D -m 644 "$here/sysusers.d/aegis.conf" "$to/usr/lib/sysusers.d/aegis.conf"
install -D -m 644 "$here/tmpfiles.d/aegis.conf" "$to/usr/lib/tmpfiles.d/aegis.conf"
install -d -m 755 "$to/etc/aegis/rules.d"
for file in aegis/agent.yaml aegis/policy.yaml \
    default/aegis-agent default/aegis-controller default/aegis-helper; do
  [ -e "$to/etc/$file" ] || install -D -m 644 "$here/etc/$file" "$to/etc/$file"
done

[ -z "$to" ] || exit 0
systemd-sysusers aegis.conf
systemd-tmpfiles --create aegis.conf
systemctl daemon-reload
