#!/bin/sh
# Delete jobs. Snakemake kills this script after 2 seconds, a busy server needs longer: qdel goes on without it.
mkdir -p logs/pbs
setsid qdel "$@" < /dev/null >> logs/pbs/cancel.log 2>&1 &
