"""``python -m docs.generators`` writes every page and picture that is made from the code."""

import json
from pathlib import Path

from docs.generators import api, commands, pictures, proofs
from graphopt.cli import results
from graphopt.lowering.schedule import primitives
from graphopt.tools import documentation

DOCS = Path(__file__).resolve().parents[1]


def made() -> dict[str, str]:
    """What each file holds, by its place in ``docs/``; the pages of rules are apart (``graphopt rules docs``)."""
    return {
        "api.md": api.page(),
        "cli.md": commands.page(),
        "proof.md": proofs.page(),
        "schedules.md": primitives.page(),
        "pictures/modules.svg": pictures.modules(),
        "pictures/egraph.svg": pictures.egraph(),
        "pictures/search.svg": pictures.search(),
        "schemas.json": json.dumps({name: results.schema(name) for name in results.RESULTS}, indent=1) + "\n",
    }


if __name__ == "__main__":
    documentation.write(DOCS / "rules")
    for name, text in made().items():
        (DOCS / name).write_text(text, encoding="utf-8")
