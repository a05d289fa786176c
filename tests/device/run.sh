#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, with graphopt[cuda13,dev] (or cuda12) installed: the tests that need a GPU, then a
# Markdown table of what programs do there. Takes less than eight minutes.
#
#   tests/device/run.sh [MODEL.onnx ...]
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python}
timeout 120 "$python" -m pytest -q -rs tests/device
tests=$?
timeout 345 "$python" -m tests.device.bench --seconds 300 "$@"
bench=$?
exit $((tests ? tests : bench))
