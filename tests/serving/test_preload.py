"""What runs are forked from has read the standard rules."""

from __future__ import annotations

import subprocess
import sys


def test_the_standard_rules_are_read_once() -> None:
    code = (
        "import graphopt.serving.preload\n"
        "from graphopt.rewrite.ruleset import standard\n"
        "import time; start = time.process_time(); standard(); assert time.process_time() - start < 0.01\n"
        "import sys, threading; assert threading.active_count() == 1; assert 'onnxruntime' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
