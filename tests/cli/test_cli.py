"""The command line as a whole, with a stand-in for the optimizer: options in, exit codes and one-line messages out."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt import errors
from graphopt.cli import EXIT_CODES, harmless, run
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.run.report import AppliedRewrite, Exploration, Report, StepReport
from graphopt.verify.verification import Verification

Optimizer = Callable[..., Any]


class Calls(list[dict[str, Any]]):
    """What the stand-in was called with; ``fault`` is what it raises."""

    fault: BaseException | None = None


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()

    def optimize(model: Path, **options: Any) -> tuple[Path, Report]:
        made.append({"model": model, **options})
        if made.fault is not None:
            raise made.fault
        Path(options["output"]).write_bytes(b"result")
        return options["output"], Report(
            str(model),
            options["target"],
            options["policy"],
            output=str(options["output"]),
            steps=(StepReport("explore", 1.5),),
            ops_before={"Relu": 3, "Conv": 2, "Add": 1},
            ops_after={"Relu": 1, "Conv": 2, "Sub": 1},
            bytes_before=1000,
            bytes_after=900,
            cost_before=2e-3,
            cost_after=1e-3,
            exploration=Exploration(12345, 80, 4, "put off", put_off=(("regroup", 7), ("wide", 0))),
            rewrites=(AppliedRewrite("relu-relu", "A22", "y[0]", "Relu(Relu(x))", "Relu(x)"),),
            verification=Verification("verified", "", "ONNX Runtime", 1, 0.01, 0.3),
            warnings=("look [here]",),
        )

    module = ModuleType("graphopt.optimize")
    module.optimize = optimize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "graphopt.optimize", module)
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    path.write_bytes(b"model")
    return path


def test_ops_that_stay_are_all_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    from graphopt.cli.tables import show_report

    report = Report("in.onnx", "portable", "reals", ops_before={"Relu": 2}, ops_after={"Relu": 2})
    show_report(report, explain=False, verbose=False, dry_run=True)
    out = capsys.readouterr().out
    assert re.search(r"ops +2 +2", out)
    assert "all others" not in out


def test_the_result_goes_beside_the_model(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", str(model)]) == 0
    assert calls[0]["output"] == model.with_name("in.opt.onnx")
    assert calls[0]["output"].read_bytes() == b"result"
    assert (calls[0]["verify"], calls[0]["target"], calls[0]["policy"]) == (1, "portable", "reals")
    out, err = capsys.readouterr()
    assert re.search(r"Relu +3 +1 +-2", out)
    assert re.search(r"Sub +1 +\+1", out)
    assert re.search(r"all others +2 +2", out)
    assert re.search(r"file +1 kB +900 B +-10.0 %", out)
    assert re.search(r"modelled cost +2 ms +1 ms +2.00x", out)
    assert "explored    saturated, except for matches put off after 4 rounds, 12,345 e-nodes" in out
    assert "put off     matches of regroup 7, wide (too wide)" in out
    assert "verified on one random input in ONNX Runtime, largest difference 0.01 of the tolerance" in out
    assert err == "warning: look [here]\n"


def test_every_option_reaches_the_optimizer(calls: Calls, model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "my.rules"
    options = f"""-o {tmp_path / "out.onnx"} --target ort --opset 18 --rules {rules} --only A1 --only C2 --without E1
        --policy exact --freeze --shape x=1,3 --dim N=2 --budget nodes=10,iters=2,seconds=1.5 --verify require
        --growth 5 --on-mismatch refuse --certificate {tmp_path / "c.json"} --rtol 0.1 --atol 0.2 --memory 1GB
        --input x=0..9 --costs analytic
        --measure --measure-seconds 9 --margin 5""".split()
    assert run(["optimize", str(model), *options]) == 0
    made = calls[0]
    del made["listener"]
    assert made == {
        "model": model,
        "output": tmp_path / "out.onnx",
        "rules": [rules],
        "only": ["A1", "C2"],
        "without": ["E1"],
        "target": "ort",
        "policy": "exact",
        "opset": 18,
        "freeze": True,
        "shapes": {"x": (1, 3)},
        "dims": {"N": 2},
        "budget": SaturationBudget(10, 2, 1.5),
        "growth": 0.05,
        "verify": "require",
        "on_mismatch": "refuse",
        "rtol": 0.1,
        "atol": 0.2,
        "inputs": {"x": "0..9"},
        "memory": 1 << 30,
        "costs": "analytic",
        "measure": 9.0,
        "margin": 0.05,
        "journal": tmp_path / "out.journal.json",
        "certificate": tmp_path / "c.json",
        "reproducer": tmp_path / "out.reproducer.onnx",
        "signed": True,
        "return_report": True,
    }


def test_writing_over_the_model_must_be_asked_for(
    calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", str(model), "-o", str(model)]) == 2
    assert "is the input itself: give another -o, or --in-place" in capsys.readouterr().err
    assert not calls
    assert run(["optimize", str(model), "--in-place"]) == 0
    assert calls[0]["output"] == model


def test_a_dry_run_writes_nothing(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", str(model), "--dry-run"]) == 0
    assert "nothing written (dry run)" in capsys.readouterr().out
    assert [p.name for p in model.parent.iterdir()] == ["in.onnx"]
    assert not calls[0]["output"].exists()


def test_json_in_a_file_and_on_stdout(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = model.with_name("report.json")
    assert run(["optimize", str(model), "--json", str(report), "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(report.read_text())["ops_before"]["Relu"] == 3
    assert run(["optimize", str(model), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == 1
    assert "modelled cost" in err


def test_explain_and_verbose(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", str(model), "--explain", "-v"]) == 0
    out = capsys.readouterr().out
    assert "relu-relu [A22] at y[0]\n  - Relu(Relu(x))\n  + Relu(x)\n" in out
    assert re.search(r"relu-relu +1", out)


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError,
        errors.ReadError,
        errors.InvalidModelError,
        errors.LimitError,
        errors.VerificationError,
        errors.RuleError,
        errors.MissingDependencyError,
        errors.DeviceError,
        errors.DeviceMemoryError,
        errors.CertificateError,
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    calls: Calls, model: Path, capsys: pytest.CaptureFixture[str], error: type[errors.GraphoptError]
) -> None:
    calls.fault = error(f"{model}: node 'a\nb\x1b[31m': wrong")
    assert run(["optimize", str(model)]) == error.exit_code
    assert error.exit_code in EXIT_CODES
    assert capsys.readouterr() == ("", f"graphopt: {model}: node 'a\\nb\\x1b[31m': wrong\n")


def test_an_invalid_model_is_named(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls.fault = errors.InvalidModelError("node 'a': wrong")
    assert run(["optimize", str(model)]) == 4
    assert capsys.readouterr().err == f"graphopt: {model}: node 'a': wrong\n"


def test_an_interruption_is_said(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls.fault = KeyboardInterrupt()
    assert run(["optimize", str(model)]) == 130
    assert capsys.readouterr().err == "graphopt: interrupted; nothing was written\n"


def test_memory_that_runs_out_is_a_limit(calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls.fault = MemoryError()
    assert run(["optimize", str(model)]) == 5
    assert capsys.readouterr().err.startswith("graphopt: out of memory")


def test_an_internal_error_leaves_its_traceback_in_a_file(
    calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.fault = ZeroDivisionError("our fault")
    assert run(["optimize", str(model)]) == 1
    line = capsys.readouterr().err
    found = re.fullmatch(r"graphopt: internal error, please report it with the file (\S+)\n", line)
    assert found is not None
    file = Path(found[1])
    assert "our fault" in file.read_text()
    file.unlink()


def test_a_package_that_cannot_be_imported_is_named(
    calls: Calls, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.fault = ModuleNotFoundError("No module named 'egglog.egraph'", name="egglog.egraph")
    assert run(["optimize", str(model)]) == 8
    assert capsys.readouterr().err.startswith("graphopt: the package egglog cannot be imported")


def test_no_color_is_no_bold_either(
    calls: Calls, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["optimize", str(model)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["optimise"], "No such command 'optimise'"),
        (["optimize"], "Missing argument 'MODEL"),
        (["optimize", "m", "--nonsense"], "No such option: --nonsense"),
        (["optimize", "m", "--opset", "x"], "Invalid value for '--opset'"),
        (["optimize", "m", "-o", "no/such/folder/x.onnx"], "the folder no/such/folder does not exist"),
        (["optimize", "m", "-o", "/"], "/ is a folder"),
        (["optimize", "m", "-o", "/dev/null"], "-o /dev/null: a device"),
        (["optimize", "m", "--json", "m"], "--json m would overwrite m, which is an input"),
        (["optimize", "m", "--rules", "r", "-o", "r"], "-o r would overwrite r, which is an input"),
        (["optimize", "m", "--dim", "N=99999999999999999999999"], "a size is at most 9223372036854775807"),
        (["reduce", "m", "--check", "false", "-o", "m"], "-o m would overwrite m, which is an input"),
        (["reduce", "m", "--check", ""], "--check is empty"),
        (["optimize", ""], "a path is empty"),
        (["optimize", "m", "-o", ""], "a path is empty"),
        (["diff", "m", ""], "a path is empty"),
        (["diff", "m", "m", "--memory", "much"], "--memory much: expected a number of bytes"),
        (["optimize", "m", "--json", "no/such/folder/x.json"], "--json no/such/folder/x.json: the folder"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(
    calls: Calls, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


def test_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "--help"]) == 0
    assert "Exit codes are listed by: graphopt --help" in capsys.readouterr().out
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for code, meaning in EXIT_CODES.items():
        assert f"{code}  {meaning}\n" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert re.fullmatch(r"graphopt \d.*\n", capsys.readouterr().out)


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from graphopt.cli import run; run(['optimize', '--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not {"numpy", "onnx", "onnx_ir", "egglog", "networkx", "scipy", "rich", "onnxruntime"} & set(
        done.stderr.split()
    )


_LISTED = [sys.executable, "-c", "from graphopt.cli import main; main(['rules', 'show', 'max-zero'])"]


def test_the_end_does_not_look_through_what_a_command_made() -> None:
    program = f"import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 0)); {_LISTED[-1]}"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_output_that_cannot_be_written_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(_LISTED, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        3,
        "graphopt: the output cannot be written: No space left on device\n",
    )


def test_who_reads_the_output_may_go_away() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(_LISTED, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_table_that_nobody_reads_ends_as_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(text: str) -> int:
        raise BrokenPipeError

    from graphopt.cli.tables import console

    monkeypatch.setattr("rich.console.os.dup2", lambda *fds: None)
    monkeypatch.setattr(sys.stdout, "write", gone)
    monkeypatch.setattr("graphopt.tools.inspection.inspect", lambda *args, **options: console().print("a line"))
    assert run(["inspect", "model.onnx"]) == 141


def test_standard_output_may_be_closed() -> None:
    program = f"import sys; sys.stdout = None; {_LISTED[-1]}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# -- names are not obeyed by the terminal on which they are printed

NAME = "\x1b[35mX\x1b]0;title\x07\x9b35m\u202e"
OBEYED = ("\x1b[35m", "\x1b]", "\x07", "\x9b", "\u202e")

COMMANDS = {
    "optimize": ["--stats", "-o", "out.onnx"],
    "inspect": [],
    "inspect m.onnx": [],
    "inspect --layers": [],
    "inspect --weights": [],
    "diff": ["m.onnx", "--layers"],
    "egraph": ["--html", "e.html"],
    "explain --rule neg-neg": [],
    "show": [],
    "convert": ["--to", "float16", "-o", "out.onnx"],
}


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model with such a name for all that has one, in a file of such a name."""
    monkeypatch.chdir(tmp_path)
    links = ["x" + NAME, "a" + NAME, "b" + NAME, "y" + NAME]
    ops = ("Neg", "Neg", "Relu")
    nodes = [helper.make_node(op, [links[i]], [links[i + 1]], name=f"{op}{i}{NAME}") for i, op in enumerate(ops)]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["d" + NAME, 4]) for name in links]
    graph = helper.make_graph(nodes, "g" + NAME, ports[:1], ports[-1:])
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="p" + NAME, ir_version=9
    )
    proto.metadata_props.add(key="k" + NAME, value="v" + NAME)
    name = f"m{NAME[:5]}.onnx"
    onnx.save(proto, "m.onnx")
    onnx.save(proto, name)
    return name


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_printed_is_harmless(command: str, named: str, capfd: pytest.CaptureFixture[str]) -> None:
    first, *options = command.split()
    assert run([first, named, *options, *COMMANDS[command]]) == 0
    captured = capfd.readouterr()
    assert captured.out
    assert not [code for code in OBEYED if code in captured.out + captured.err]


def test_an_error_is_harmless(named: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", named, "-o", "out.onnx", "--dim", f"{NAME}=3"]) == 2
    assert not [code for code in OBEYED if code in capfd.readouterr().err]


def test_a_terminal_gets_our_own_codes_alone(named: str) -> None:
    above, terminal = pty.openpty()
    command = [sys.executable, "-m", "graphopt", "optimize", named, "-o", "out.onnx"]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment):
        os.close(terminal)
        pieces = []
        with suppress(OSError):  # the other end is closed
            while piece := os.read(above, 4096):
                pieces.append(piece)
    os.close(above)
    shown = b"".join(pieces).decode()
    assert "\x1b[1m" in shown  # it is a terminal
    assert not [code for code in OBEYED if code in shown]


def test_text_stays_but_for_what_is_obeyed() -> None:
    assert harmless("a\tµ ✓ 日本\n") == "a\tµ ✓ 日本\n"
    assert harmless("\x1b[2J\r") == "\\x1b[2J\\r"
