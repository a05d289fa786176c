"""A certificate holds for what it was written for, and for nothing that was changed."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

import graphopt
from graphopt.errors import CertificateError, ReadError
from graphopt.ir.text import parse
from graphopt.run.certificate import BASES, Certificate, Certified, CertifiedRewrite, _seal, certify
from graphopt.run.local_checks import LocalCheck
from tests.run.test_write_result import proto

Files = tuple[Path, Path, Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """An original, a result, and its certificate."""
    pytest.importorskip("onnxruntime")
    original, result, certificate = (tmp_path / name for name in ("in.onnx", "out.onnx", "out.certificate.json"))
    onnx.save(proto(), original)
    graphopt.optimize(original, output=result, certificate=certificate)
    return original, result, certificate


def edited(file: Path, change: object, is_sealed: bool = True) -> None:
    """Change what a certificate says; sealed again, as a forger would."""
    body = json.loads(file.read_text())
    seal = body.pop("digest")
    change(body)  # type: ignore[operator]
    file.write_text(json.dumps({"digest": _seal(body) if is_sealed else seal, **body}))


def test_a_certificate_holds_and_says_what_it_rests_on(files: Files) -> None:
    certified = certify(*files)
    assert {check.status for check in certified.places.values()} == {"checked"}
    rewrites = certified.certificate.rewrites
    assert [r.rule for r in rewrites] == ["relu-holds"]
    assert rewrites[0].evidence in ("ieee", "reals", "index")
    assert certified.certificate.weakest == rewrites[0]
    assert certified.certificate.verification is not None
    assert certified.certificate.verification.is_verified
    assert dict(certified.certificate.versions)["numpy"]


def test_an_unsigned_result_has_one_too(files: Files) -> None:
    original, result, certificate = files
    graphopt.optimize(original, output=result, certificate=certificate, signed=False)
    assert certify(original, result, certificate).statuses == {"checked": 1}


@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_weight_is_refused(files: Files, which: int) -> None:
    model = onnx.load(files[which])
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[0, 0] += 1
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, model.graph.initializer[0].name))
    onnx.save(model, files[which])
    with pytest.raises(CertificateError, match=f"is not the {('original', 'result')[which]}"):
        certify(*files)


def test_a_result_of_other_rewrites_is_refused_even_where_the_digest_is_its(files: Files) -> None:
    from graphopt.run.certificate import digest

    model = onnx.load(files[1])
    model.graph.node[-1].name = "another"
    onnx.save(model, files[1])
    edited(files[2], lambda body: body.update(result=digest(files[1])))
    with pytest.raises(CertificateError, match="is not what the journal in"):
        certify(*files)


def test_a_changed_byte_of_the_certificate_is_refused(files: Files) -> None:
    edited(files[2], lambda body: body["rewrites"][0].update(site="elsewhere"), is_sealed=False)
    with pytest.raises(CertificateError, match="was changed after it was written"):
        certify(*files)


def test_evidence_is_looked_up_and_not_believed(files: Files) -> None:
    edited(files[2], lambda body: body["rewrites"][0].update(evidence="ieee"))
    with pytest.raises(CertificateError, match=r"says that relu-holds .* is reals, ieee .*, and it is reals, "):
        certify(*files)


@pytest.mark.parametrize(("old", "new"), [("x.low >= 0", "x.low >= -9"), ("Relu(x)", "Relu(x")])
def test_a_changed_rule_is_refused(files: Files, old: str, new: str) -> None:
    def change(body: dict[str, dict[str, list[str]]]) -> None:
        (rule,) = body["journal"]["rules"]
        assert old in rule
        body["journal"]["rules"] = [rule.replace(old, new)]

    edited(files[2], change)
    with pytest.raises(CertificateError):
        certify(*files)


def test_a_file_that_is_no_certificate_is_told_so(files: Files) -> None:
    files[2].write_text("[]")
    with pytest.raises(ReadError, match="is not a certificate"):
        certify(*files)


def test_a_journal_is_not_taken_for_a_certificate_that_was_changed(files: Files) -> None:
    journal = files[2].with_name("out.journal.json")
    graphopt.optimize(files[0], output=files[1], journal=journal)
    with pytest.raises(ReadError, match="is not a certificate of graphopt: it holds no journal"):
        certify(files[0], files[1], journal)


def test_reports_say_what_results_rest_on() -> None:
    _, report = graphopt.optimize(proto(), verify="off", return_report=True)
    assert report.certificate.kinds == {report.certificate.rewrites[0].basis: 1}
    assert json.loads(report.to_json())["certificate"]["rewrites"][0]["rule"] == "relu-holds"


@pytest.mark.parametrize(
    ("evidence", "scope", "basis"),
    [
        ("none", "", "none"),
        ("checked", "16 graphs", "checked"),
        ("tested", "tests/rewrite/passes/test_fold.py", "tested"),
        ("index", "rank <= 4, sizes 0 to 4, 0 to 2", "bounded"),
        ("reals", "rank <= 3, sizes none, none, 1 to 2", "bounded"),
        ("reals", "float16, float32", "reals"),
        ("reals", "all sizes, rank <= 4", "reals"),
        ("index", "all sizes, rank <= 4", "bits"),
        ("ieee", "float16, float32", "bits"),
    ],
)
def test_only_proofs_that_bound_no_size_count_as_proofs_for_all_sizes(evidence: str, scope: str, basis: str) -> None:
    rewrite = CertifiedRewrite(1, "a-rule", "reals", evidence, scope)
    assert rewrite.basis == basis
    assert list(BASES).index(basis) == rewrite.strength[0]


def test_a_reason_that_many_checks_share_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    from graphopt.cli.tables import show_certified

    rewrites = tuple(CertifiedRewrite(number, "a-rule", "exact", "none") for number in range(1, 7))
    places = {r.id: LocalCheck("unchecked", why="no input fits" if r.id < 6 else "it is not there") for r in rewrites}
    show_certified(Certified(Certificate(rewrites), places))
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "places      6 could not be run",
        "  a-rule (#1) at the graph, a-rule (#2) at the graph, a-rule (#3) at the graph and 2 others: no input fits",
        "  a-rule (#6) at the graph: it is not there",
    ]


def test_the_command_says_what_a_result_rests_on_or_why_not(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    from graphopt.cli import run

    arguments = ["certify", *map(str, files)]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "rests on    1 rewrite: 1 by rules proved" in out
    assert "weakest     relu-holds (#1) at b" in out
    assert "places      1 agree at their place" in out
    files[1].write_bytes(files[1].read_bytes() + b"\0")
    assert run(arguments) == CertificateError.exit_code
    assert capsys.readouterr() == ("", f"graphopt: {files[1]}: is not the result that {files[2]} is about\n")


def test_it_prints_what_the_result_rests_on() -> None:
    _, report = graphopt.optimize(
        parse("x: float32[2, 3]\ny = Neg(Neg(x))\nreturn y"), verify="off", return_report=True
    )
    assert repr(report.certificate) == "<Certificate of 1 rewrite>"
    counts, weakest = str(report.certificate).splitlines()
    assert counts.startswith("1 rewrite: 1 by rules proved")
    assert weakest.startswith("weakest: neg-neg (#1) at ")
    assert str(Certificate()) == "0 rewrites"
    assert str(report.verification) == "not verified (off)"
