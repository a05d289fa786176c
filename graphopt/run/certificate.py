"""Certificate of a result: each rewrite with the evidence for its rule and its check at its place, in a file that
``graphopt certify`` checks by replaying, without the e-graph.

What a certificate says is not believed: digests, evidence, the replay and the checks at all places are made again.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.display import counted
from graphopt.errors import CertificateError, ReadError, RuleError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.rewrite.match.journal import Entry, unsigned
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.rule.rule import Rule, Soundness
from graphopt.rewrite.rule.rule_digest import content
from graphopt.run.derivation import Derivation
from graphopt.verify.verification import Verification

if TYPE_CHECKING:
    from graphopt.run.local_checks import LocalCheck

SCHEMA = 1
"""The version of the file: grows when a field changes its meaning or goes away."""

BASES = {
    "none": "without evidence of their rule",
    "checked": "by rules checked on random tensors",
    "tested": "by native passes, each with its test",
    "bounded": "by rules proved to a bound of sizes",
    "reals": "by rules proved for all sizes over the reals",
    "bits": "by rules proved for all sizes, bit by bit",
}
"""What rewrites rest on, in words, the weakest first."""

_PACKAGES = ("numpy", "onnx", "onnxruntime")


@dataclass(frozen=True, slots=True)
class CertifiedRewrite:
    """A rewrite, and what is known of it."""

    id: int
    """Its number in the journal."""
    rule: str
    soundness: str
    """The class of its rule or pass."""
    evidence: str
    """That of its rule, as ``graphopt.proof.evidence`` names it; ``tested`` for native passes, ``none`` without any."""
    scope: str = ""
    """For what the rule is proved, or the test of a native pass."""
    site: str = ""
    digest: str = ""
    """That of the rule's content; none of passes."""

    @property
    def basis(self) -> str:
        """What it rests on, of ``BASES``: by the kind of the evidence, and by whether that bounds sizes."""
        from graphopt.proof.evidence import Evidence  # where rules were applied

        if self.evidence in BASES and self.evidence != "reals":
            return self.evidence
        if not Evidence(self.evidence, self.scope).is_of_all_sizes:
            return "bounded"
        return "reals" if self.evidence == "reals" else "bits"  # moved elements are symbols: their bits stay

    @property
    def strength(self) -> tuple[int, int]:
        """How much the evidence is worth, then how much the rule claims: the least is the weakest link."""
        return list(BASES).index(self.basis), -list(Soundness).index(Soundness(self.soundness))

    def __str__(self) -> str:
        return f"{self.rule} (#{self.id}) at {self.site or 'the graph'}"


@dataclass(frozen=True, slots=True, repr=False)
class Certificate:
    """What a result rests on."""

    rewrites: tuple[CertifiedRewrite, ...] = ()
    verification: Verification | None = None
    versions: tuple[tuple[str, str], ...] = ()
    original: str = ""
    """The digest of the original's files; empty where it was no file, or nobody asked for it."""
    result: str = ""

    @property
    def weakest(self) -> CertifiedRewrite | None:
        """The rewrite with the weakest evidence; None where there is none."""
        return min(self.rewrites, key=lambda rewrite: rewrite.strength, default=None)

    @property
    def kinds(self) -> dict[str, int]:
        """How many rewrites rest on which of ``BASES``, the weakest first."""
        counts = Counter(rewrite.basis for rewrite in self.rewrites)
        return {basis: counts[basis] for basis in BASES if basis in counts}

    def __repr__(self) -> str:
        return f"<Certificate of {counted(len(self.rewrites), 'rewrite')}>"

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {BASES[basis]}" for basis, count in reversed(self.kinds.items()))
        weakest = f"\nweakest: {self.weakest}, {self.weakest.soundness}" if self.weakest is not None else ""
        return f"{counted(len(self.rewrites), 'rewrite')}{': ' if counts else ''}{counts}{weakest}"

    def to_json(self, derivation: Derivation) -> str:
        """The certificate of a derivation as JSON, with a digest of all that it says."""
        weakest = self.weakest
        body = {
            "schema": SCHEMA,
            "versions": dict(self.versions),
            "original": self.original,
            "result": self.result,
            "verification": None if self.verification is None else asdict(self.verification),
            "weakest": None if weakest is None else weakest.id,
            "rewrites": [asdict(rewrite) for rewrite in self.rewrites],
            "journal": json.loads(derivation.to_json()),
        }
        return json.dumps({"digest": _seal(body), **body}, indent=1) + "\n"


def certificate(
    derivation: Derivation, verification: Verification | None, evidence: Iterable[Path] = ()
) -> Certificate:
    """What a result rests on by itself; ``of_files`` adds which files it is about, and which packages made them.

    ``evidence`` are files of it, beside that which is kept with the rules.
    """
    rules = {rule.name: rule for rule in derivation.rules}
    stated = {rule.name: _stated(rule, tuple(evidence)) for rule in derivation.rules}
    return Certificate(tuple(_certified(entry, rules, stated) for entry in derivation.rewrites), verification)


def of_files(made: Certificate, original: str | Path | None, result: str | Path | None) -> Certificate:
    """The certificate with the digests of the files that it is about, and the versions of the packages that matter."""
    from importlib.metadata import PackageNotFoundError, version

    from graphopt import __version__

    versions = {"graphopt": str(__version__)}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return replace(
        made,
        versions=tuple(versions.items()),
        original="" if original is None else digest(Path(original)),
        result="" if result is None else digest(Path(result)),
    )


def _stated(rule: Rule, files: tuple[Path, ...]) -> tuple[str, str, str]:
    """Kind and scope of the evidence for a rule, and the digest of its content."""
    from graphopt.run.kept_evidence import evidence_of  # where rules were applied

    evidence = evidence_of(rule, files)
    return ("none", "", content(rule)) if evidence is None else (evidence.kind, evidence.scope, content(rule))


def _certified(entry: Entry, rules: Mapping[str, Rule], stated: Mapping[str, tuple[str, str, str]]) -> CertifiedRewrite:
    if entry.rule in rules:
        kind, scope, digest = stated[entry.rule]
        claimed = rules[entry.rule].soundness
        return CertifiedRewrite(entry.id, entry.rule, claimed.value, kind, scope, entry.site, digest)
    native = next((p for p in PASSES if p.name == entry.rule), None)
    act = None if native is None else native.visit or native.sweep
    module = "graphopt.rewrite.passes.fold" if act is None else act.__module__
    claimed = Soundness.EXACT if native is None else native.soundness
    test = f"tests/rewrite/passes/test_{module.rpartition('.')[2]}.py"
    return CertifiedRewrite(entry.id, entry.rule, claimed.value, "tested", test, entry.site)


def digest(model: Path) -> str:
    """SHA-256 of a model's file and of the data files that it names."""
    try:
        state = sha256()
        for path in [model, *(model.parent / name for name in sorted(onnx_io.data_files(model)))]:
            with open(path, "rb") as file:
                state.update(file_digest(file, "sha256").digest())
        return state.hexdigest()
    except OSError as error:
        raise ReadError(f"{model}: cannot be read ({error.strerror})") from None


def _digests(graph: Graph, name: str) -> Iterator[str]:
    """The digests that a graph has as a file of this name: as it is, and where its nodes do not say what made them."""
    for spelled in (graph, unsigned(graph)):
        with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
            onnx_io.save(spelled, Path(folder) / name)
            yield digest(Path(folder) / name)


def _seal(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# -- checking


@dataclass(frozen=True, slots=True)
class Certified:
    """What a certificate that holds rests on."""

    certificate: Certificate
    places: Mapping[int, LocalCheck]
    """For each rewrite, by number, what its check at its place said."""

    @property
    def statuses(self) -> dict[str, int]:
        """How many checks at places ended how."""
        return dict(Counter(check.status for check in self.places.values()))

    @property
    def error(self) -> float:
        """The largest difference at a place, in units of the tolerance."""
        return max((check.error or 0.0 for check in self.places.values() if check.status == "checked"), default=0.0)


def certify(original: str | Path, result: str | Path, file: str | Path, evidence: Iterable[Path] = ()) -> Certified:
    """What a result rests on, by its certificate. Raises CertificateError where that does not hold.

    ``evidence`` are the files to believe of rules that are not graphopt's own.
    """
    from graphopt.run.local_checks import check_places

    kept, derivation = read(file)
    for path, wanted, what in ((original, kept.original, "original"), (result, kept.result, "result")):
        if wanted != digest(Path(path)):
            raise CertificateError(f"{path}: is not the {what} that {file} is about")
    now = certificate(derivation, kept.verification, evidence)
    for mine, its in zip(now.rewrites, kept.rewrites, strict=False):
        if mine != its:
            hint = "; is it a rule of yours? --rules names its file" if mine.evidence == "none" else ""
            raise CertificateError(f"{file}: says that {its} is {_claim(its)}, and it is {_claim(mine)}{hint}")
    if len(now.rewrites) != len(kept.rewrites):
        raise CertificateError(f"{file}: lists {len(kept.rewrites)} rewrites, and its journal {len(now.rewrites)}")

    def accept(graph: Graph) -> None:
        if kept.result not in _digests(graph, Path(result).name):
            raise CertificateError(f"{result}: is not what the journal in {file} makes of {original}")

    accepted = kept.verification.sizes if kept.verification else ()
    try:
        places = check_places(onnx_io.load(original), derivation, accept=accept, accepted=accepted)
    except ReadError as error:
        raise CertificateError(f"{file}: its journal cannot be replayed on {original}: {error}") from None
    for rewrite in now.rewrites:
        check = places[rewrite.id]
        if check.status == "differs":
            raise CertificateError(f"{file}: the two sides of {rewrite} differ at its place: {check.why}")
    return Certified(kept, places)


def _claim(rewrite: CertifiedRewrite) -> str:
    """The class and the evidence in words."""
    scope = f" ({rewrite.scope})" if rewrite.scope else ""
    return f"{rewrite.soundness}, {rewrite.evidence}{scope}, by the rule {rewrite.rule} {rewrite.digest}".rstrip()


def read(file: str | Path) -> tuple[Certificate, Derivation]:
    """A certificate and the journal in it. Raises ReadError where it is none, CertificateError where it was changed."""
    try:
        body = json.loads(Path(file).read_text(encoding="utf-8"))
        version = body["schema"]
        if "journal" not in body:
            raise ReadError(f"{file}: is not a certificate of graphopt: it holds no journal")
        if version != SCHEMA:
            raise ReadError(f"{file}: is a certificate of version {version}, this graphopt reads version {SCHEMA}")
        if body.pop("digest") != _seal(body):
            raise CertificateError(f"{file}: was changed after it was written")
        derivation = Derivation.from_json(json.dumps(body["journal"]), str(file))
        rewrites = tuple(CertifiedRewrite(**rewrite) for rewrite in body["rewrites"])
        told = body["verification"]
        verification = None if told is None else _verification(told)
        return (
            Certificate(rewrites, verification, tuple(body["versions"].items()), body["original"], body["result"]),
            derivation,
        )
    except RuleError as error:
        raise CertificateError(f"{file}: a rule in it is wrong: {error}") from None
    except OSError as error:
        raise ReadError(f"{file}: cannot be read as a certificate ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ReadError(f"{file}: is not a certificate of graphopt ({type(error).__name__}: {error})") from None


def _verification(told: Mapping[str, Any]) -> Verification:
    """What a certificate keeps of the comparison of the outputs."""
    sizes = tuple({str(name): int(size) for name, size in drawn.items()} for drawn in told["sizes"])
    return Verification(
        str(told["status"]), str(told["reason"]), str(told["engine"]), int(told["draws"]), told["error"], sizes=sizes
    )
