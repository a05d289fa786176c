"""What displays itself does so without importing what draws it before it is shown."""

import subprocess
import sys


def test_nothing_is_imported_before_it_is_shown() -> None:
    program = (
        "import sys\nfrom graphopt.ir.text import parse\n"
        "g = parse('x: float32[2] y = Relu(x) return y')\n"
        "assert not any(m.startswith('graphopt.web') for m in sys.modules)\n"
        "assert 'Relu' in g._repr_html_()\n"
        "assert 'graphopt.web.cards' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
