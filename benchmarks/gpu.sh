#!/usr/bin/env bash
# Checks and times everything that a GPU does, in one call of under nine minutes; see benchmarks/gpu/run.py.
#     benchmarks/gpu.sh [--device cuda|cuda:0|cpu] [--only PART ...] [--quick] [--list] [--logs FOLDER]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONUNBUFFERED=1 PYTHONPATH="$root/benchmarks:$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" "$root/benchmarks/gpu/run.py" "$@"
