#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, with graphopt[cudnn13,dev] (or cudnn12) and onnxruntime-gpu installed: the tests that
# need a GPU, then a Markdown table of what programs do there. Takes less than eight minutes. Where no model is named,
# six are measured that need no download.
#
#   tests/device/run.sh [MODEL.onnx ...]
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python}
timeout --kill-after 5 120 "$python" -m pytest -q -rs tests/device
tests=$?
timeout --kill-after 5 345 "$python" -m tests.device.bench --seconds 300 "$@"
bench=$?
exit $((tests ? tests : bench))
