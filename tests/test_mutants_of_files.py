"""Files and command lines of strangers end as documented: taken or refused in one line, and never in a traceback."""

from __future__ import annotations

import json
import re
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from shutil import copytree
from time import process_time

import numpy as np
import pytest

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.rewrite.ruleset import standard_folder
from graphopt.runtime.saved import load
from graphopt.tuning.database import Records
from tests.mutants_of_files import ended, text, value
from tests.mutants_of_models import flipped, outcome

MODEL = """
x: float32[4, 8]
a = MatMul(x, float32[8, 8]{0.5, ...})
c = Relu(Relu(Add(a, 0.0)))
y = Softmax(Mul(Transpose(Transpose(c, perm=[1, 0]), perm=[1, 0]), 1.0), axis=-1)
return y
"""
KINDS = ("rules", "check", "journal", "certificate", "database", "program", "model", "command")
FEW = {"rules": 15, "check": 10, "journal": 15, "certificate": 10, "database": 40, "program": 40, "model": 20}
FEW |= {"command": 40}
MANY = 400
LONGEST, EACH_RULE = 30.0, 5.0
"""How many seconds of processors a command may take, and the check of a rule: a second, and the draw that is under way
when that is up."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, what became of it with its journal and certificate, a program, and a database."""
    folder = tmp_path_factory.mktemp("files")
    onnx_io.save(parse(MODEL), folder / "m.onnx")
    made = ["optimize", "m.onnx", "-o", "o.onnx", "--certificate", "c.json"]
    words = [str(folder / word) if "." in word else word for word in (*made, "-q")]
    code, said, how = ended(words, 300.0)  # the first reads all rules
    assert code == 0, said or how
    added = "x: float32[4] y = Add(x, float32[4]{1.0, 2.0, 3.0, 4.0}) return y"
    graphopt.compile(parse(added), verify="off").save(folder / "program")
    with Records(folder / "d.sqlite", write=True):
        pass
    return folder


@pytest.fixture
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the files, for a command may write over them."""
    monkeypatch.chdir(copytree(files, tmp_path / "copy"))


def loaded(random: Random) -> None:
    """Load and run a program, a file of which has other bytes; or load one whose manifest says something else, and is
    digested anew: to run that is to run code of a stranger."""
    folder = copytree("program", "mutant", dirs_exist_ok=True)
    file = random.choice(sorted(Path(folder).iterdir()))
    content = (Path("program") / file.name).read_bytes()
    if file.suffix == ".json" and random.random() < 0.5:
        said = {name: what for name, what in json.loads(content).items() if name != "digest"}
        said = value(random, said)
        digest = sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        file.write_text(json.dumps({"digest": digest, **said} if isinstance(said, dict) else said))
        load(folder)
        return
    file.write_bytes(flipped(random, content))
    load(folder)({"x": np.zeros(4, np.float32)})


def ends_as_documented(kind: str, seed: int) -> None:
    random, seconds = Random(seed), LONGEST
    match kind:
        case "rules" | "check":
            blocks = random.choice(sorted(standard_folder().glob("*.rules"))).read_text().split("\n\n")
            rules = re.sub(r"^(?=[a-z][\w-]*:)", "my-", random.choice(blocks), flags=re.MULTILINE)
            Path("r.rules").write_text(text(random, rules))
            lines = [["optimize", "m.onnx", "-o", "p.onnx", "--rules", "r.rules", "--verify", "off", "-q"]]
            if kind == "check":
                lines, seconds = [["rules", "check", "--no-cache", "r.rules"]], EACH_RULE * (1 + rules.count("my-"))
        case "journal":
            content = Path("o.journal.json").read_text()
            changed = json.dumps(value(random, json.loads(content))) if random.random() < 0.8 else text(random, content)
            Path("j.json").write_text(changed)
            lines = [["explain", "o.onnx", "--journal", "j.json"], ["explain", "o.onnx", "y", "--journal", "j.json"]]
            lines += [["revert", "m.onnx", "o.onnx", "1", "-o", "p.onnx", "--journal", "j.json", "-q"]]
        case "certificate":
            content = Path("c.json").read_text()
            Path("k.json").write_text(json.dumps(value(random, json.loads(content))))
            lines = [["certify", "m.onnx", "o.onnx", "k.json"]]
        case "database":
            Path("e.sqlite").write_bytes(flipped(random, Path("d.sqlite").read_bytes()))
            lines = [["db", "list", "--database", "e.sqlite"], ["db", "export", "x.jsonl", "--database", "e.sqlite"]]
        case "program":
            wrong = outcome(partial(loaded, random), 60.0)
            assert wrong in ("ok", "refused"), f"mutant {seed} of {kind}: {wrong}"
            lines = []
        case "model":
            Path("n.onnx").write_bytes(flipped(random, Path("m.onnx").read_bytes()))
            lines = [["inspect", "n.onnx"], ["diff", "m.onnx", "n.onnx", "--verify", "off"], ["show", "n.onnx"]]
        case _:
            lines = [command(random)]
    for line in lines:
        start = process_time()
        *_, wrong = ended(line)
        wrong = wrong or ("it took too long" if process_time() - start > seconds else "")
        assert not wrong, f"mutant {seed} of {kind}, {line}: {wrong}"


NAMES = re.findall(
    r"\S+",
    """inspect show diff explain revert certify extract convert optimize reduce learn-rule rules db target doctor""",
)
OPTIONS = re.findall(
    r"\S+",
    """-o --output --rules --policy --target --verify --memory --seconds --only --without --shape --dim --input -q
    --json --journal --rtol --atol --growth --budget --nodes --inputs --outputs --to --keep --samples --name --report
    --rule --choices --database --certificate --opset list show check fmt try coverage""",
)
GIVEN = (
    *(
        "m.onnx",
        "o.onnx",
        "c.json",
        "nothing",
        "",
        "-1",
        "0",
        "1",
        "nan",
        "1e999",
        "x=random",
        "x=1,2",
        "x",
        "=",
        "y..y",
    ),
    *("y", "exact", "\x00", "\x1b[31m", "float16", ".", "/", "[A1]", "8" * 400),
)


def command(random: Random) -> list[str]:
    """A command line of words that there are."""
    words = [random.choice(NAMES)]
    for _ in range(random.choice((0, 1, 2, 3, 5))):
        words.append(random.choice((*OPTIONS, *GIVEN)))
        if words[-1] in OPTIONS:
            words.append(random.choice(GIVEN))
    return words


@pytest.mark.parametrize("kind", KINDS)
def test_some_mutants_of_files(kind: str, here: None) -> None:
    for seed in range(FEW[kind]):
        ends_as_documented(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutants_of_files(kind: str, part: int, here: None) -> None:
    for seed in range(MANY * part, MANY * (part + 1)):
        ends_as_documented(kind, seed)
