#!/bin/sh
# Fill FOLDER with the wheels of Aegis and all it needs, so that an image or a node installs without
# a network. What comes from the registry is kept under .cache, by the lock file's hash.
#   wheelhouse.sh PYTHON PYTHON_VERSION FOLDER
set -eu
python=$1 version=$2 folder=$3
here=$(cd "$(dirname "$0")/../.." && pwd)
cache=$here/.cache/wheels-$version-$(cat "$here/requirements.lock" "$here/pyproject.toml" | sha256sum | cut -c1-12)

mkdir -p "$folder"
"$python" -m hatchling build -t wheel -d "$folder" >/dev/null
wheel=$(ls "$folder"/aegis_supervisor-*.whl)
if [ ! -d "$cache" ]; then
  mkdir -p "$here/.cache"
  part=$cache.$$
  trap 'rm -rf "$part" "$part.pins"' EXIT
  sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' "$here/requirements.lock" > "$part.pins"
  "$python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
    --python-version "$version" --constraint "$part.pins" --dest "$part" "$wheel[controller,agent]"
  rm -f "$part"/aegis_supervisor-*.whl
  mv -T "$part" "$cache" 2>/dev/null || [ -d "$cache" ]
fi
cp "$cache"/*.whl "$folder"
