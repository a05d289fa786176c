"""Equal constants of several programs are one array; others, and objects, stay as they are."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from graphopt.program.shared_constants import SharedConstants


def test_equal_constants_are_one_array() -> None:
    shared = SharedConstants()
    a = np.arange(6, dtype=np.float32)
    first = shared({0: a, 1: a.copy(), 2: a.reshape(2, 3), 3: a.view(np.int32), 4: np.array(1.0), 5: a[:0]})
    again = shared({7: a.copy(), 8: np.array(1.0), 9: np.array(2.0), 10: a.astype(ml_dtypes.bfloat16)})
    assert first[0] is first[1] is again[7] is a
    assert again[8] is first[4] is not again[9]
    assert first[2].shape == (2, 3)
    assert first[3].dtype == np.int32
    assert again[10].dtype == ml_dtypes.bfloat16
    texts = np.array(["a"], object)
    assert shared({0: texts})[0] is texts
