#!/bin/sh
# Whether a local disk can be written to, and quickly: `scratch.sh /scratch 500` writes and reads back
# 64 MB and wants 500 MB/s. Exit 0 well, 1 a fault, 2 could not tell.
folder=$1 limit=${2:-100}
[ -d "$folder" ] || { echo "there is no $folder"; exit 1; }
command -v dd >/dev/null || { echo "there is no dd on this node"; exit 2; }
file=$(mktemp "$folder/.aegis-check.XXXXXX") || { echo "$folder cannot be written to"; exit 1; }
trap 'rm -f "$file"' EXIT
before=$(date +%s%N)
dd if=/dev/zero of="$file" bs=1M count=64 conv=fsync 2>/dev/null || { echo "$folder is full"; exit 1; }
after=$(date +%s%N)
speed=$(( 64 * 1000000000 / (after - before) ))
[ "$(wc -c <"$file")" -eq 67108864 ] || { echo "$folder gave back less than was written"; exit 1; }
echo "$folder takes $speed MB/s; $limit are wanted"
[ "$speed" -ge "$limit" ]
