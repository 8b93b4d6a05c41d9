#!/bin/sh
# AMD's ROCm Validation Suite as a check: `rvs.sh /opt/rocm/share/rocm-validation-suite/conf/gst_single.conf`
# Its results are lines such as "[RESULT] … gst 33367 … met: TRUE" and "… pass: FALSE". A run without
# any result could not tell, whatever it exited with.
PATH=$PATH:/opt/rocm/bin
command -v rvs >/dev/null || { echo "there is no rvs on this node"; exit 2; }
[ -r "$1" ] || { echo "there is no configuration $1"; exit 2; }
output=$(rvs -c "$1" 2>&1)
code=$?
bad=$(echo "$output" | grep -iE '\[RESULT\].*(met|pass): *FALSE' | tail -n 1)
good=$(echo "$output" | grep -ciE '\[RESULT\].*(met|pass): *TRUE')
if [ -n "$bad" ]; then echo "$bad"; exit 1; fi
if [ "$good" -eq 0 ]; then echo "rvs gave no result (exit $code): $(echo "$output" | tail -n 1)"; exit 2; fi
echo "$good results, all of them good"
