"""Default schedules are a list of rules: what each is for and why not; lists are changed, and traces replay."""

from __future__ import annotations

import re
import warnings

import pytest

from graphopt.errors import ScheduleError, UsageError
from graphopt.ir.onnx_io import load
from graphopt.lowering.cpu.default_schedules import BY_NAME
from graphopt.lowering.cpu.default_schedules import scheduled as scheduled_for_cpu
from graphopt.lowering.cpu.loop_fission import separated
from graphopt.lowering.cpu.scheduling import RULES
from graphopt.lowering.cuda import schedules as for_cuda
from graphopt.lowering.cuda.card import CARD
from graphopt.lowering.cuda.dispatch import choice
from graphopt.lowering.cuda.emit import emit as emit_for_cuda
from graphopt.lowering.emit.kernel_source import Launchable
from graphopt.lowering.link import passes
from graphopt.lowering.link.options import BY_RULE
from graphopt.lowering.loops.nest import For, Nest, statements
from graphopt.lowering.loops.script import read
from graphopt.lowering.lower.lower import NeedsValues
from graphopt.lowering.schedule.rules import (
    CLASSES,
    GEMV,
    Convolution,
    ElementWise,
    Fallback,
    GeneralReduction,
    Matmul,
    Reduction,
    ScheduleRule,
    Transpose,
    default_rules,
    explain,
    schedule_by_rules,
)
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.simplify import simplify
from graphopt.target import target
from tests.lowering.cpu.test_default_schedules import sources
from tests.lowering.cuda.row_nests import ANY_ROWS, ROWS
from tests.lowering.cuda.simulated import check as check_simulated
from tests.lowering.described import FIXED, SYMBOLIC
from tests.lowering.native import check
from tests.recipes.instances import INSTANCES, instance

ALL = FIXED | SYMBOLIC


def test_the_list_is_that_of_both_targets() -> None:
    assert tuple(CLASSES) == RULES == tuple(BY_NAME) == tuple(for_cuda.BY_NAME)
    assert [rule.name for rule in default_rules()] == [rule.name for rule in default_rules("cuda")] == list(RULES)
    with pytest.raises(UsageError):
        default_rules("none")


KINDS: dict[str, tuple[type[ScheduleRule], type[ScheduleRule]]] = {
    "transposed_product": (Matmul, Matmul),
    "few_rows": (Matmul, Matmul),
    "pointwise_convolution": (Matmul, Matmul),
    "convolution": (Convolution, Convolution),
    "blocked_pool": (Convolution, Reduction),
    "along": (Reduction, Reduction),
    "across": (Reduction, Reduction),
    "largest_of": (Reduction, Reduction),
    "rows_of_any_length": (Reduction, Reduction),
    "turned": (Transpose, Transpose),
    "any_turned": (Transpose, Transpose),
    "flat": (ElementWise, ElementWise),
    "padded": (ElementWise, ElementWise),
    "empty": (Fallback, ElementWise),
}


@pytest.mark.parametrize("name", KINDS)
def test_which_rule_is_used(name: str) -> None:
    for rule, device in zip(KINDS[name], ("cpu", "cuda"), strict=True):
        assert explain(ALL[name](), default_rules(), device).used == (rule.__name__,)


def test_blocks_of_the_same_rows_are_a_general_reduction() -> None:
    assert explain(ALL["softmax"](), default_rules()).used == ("GeneralReduction",)
    assert explain(ROWS["layer_norm"](), default_rules("cuda"), "cuda").used == ("GeneralReduction",)


def test_a_product_by_a_vector_is_a_gemv() -> None:
    nest = ROWS["vector"]()
    for device in ("cpu", "cuda"):
        assert explain(nest, default_rules(), device).used == ("GEMV",)
    check(nest, schedule_by_rules(nest, [GEMV]).nest)


# ---------------------------------------------------------------------- the list is the compiler's default


def cpu_sources(*nests: Nest) -> list[str]:
    return [source for nest in nests for source in sources(nest)]


@pytest.mark.parametrize("name", ALL)
def test_rules_schedule_as_the_compiler_does(name: str) -> None:
    nest = ALL[name]()
    expected = cpu_sources(*map(scheduled_for_cpu, separated(nest)))
    s = schedule_by_rules(nest, default_rules())
    assert cpu_sources(s.nest) == expected
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest


OPS = [op for op in sorted(INSTANCES) if "::" not in op]


def scheduled_nests(op: str) -> list[tuple[Nest, list[Nest]]]:
    """The nests of an instance of an op, and the parts that the compiler schedules them in; none where it has to know
    what inputs hold."""
    drawn = instance(op, 0, 0)
    if drawn is None:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = passes.legalize_ops(simplify(load(drawn[0]), (), (INLINE,)), BY_RULE)
            for step in (passes.fuse_ops, passes.lower_to_programs, passes.schedule):
                program = step(program)
        except (NeedsValues, passes.NestFailed):
            return []
    return [
        (nest, [part.nest for part in parts]) for (nest, is_ready), parts in program.scheduled.items() if not is_ready
    ]


@pytest.mark.parametrize("start", range(4))
def test_rules_schedule_nests_of_all_ops_as_the_compiler_does(start: int) -> None:
    found = [(op, *each) for op in OPS[start::4] for each in scheduled_nests(op)]
    for op, nest, parts in found:
        s = schedule_by_rules(nest, default_rules())
        if len(parts) == 1:
            assert cpu_sources(s.nest) == cpu_sources(*parts), op
        assert s.trace.replay(nest).nest == s.nest, op
    assert len(found) > 20


@pytest.mark.parametrize("name", [*ALL, *ROWS, *ANY_ROWS])
def test_rules_for_cuda_schedule_as_the_compiler_does(name: str) -> None:
    nest = (ALL | ROWS | ANY_ROWS)[name]()
    library = choice("auto", target("cuda").prices.products)
    s = schedule_by_rules(nest, default_rules("cuda"), "cuda")
    assert cuda_sources(s.nest) == cuda_sources(for_cuda.scheduled(nest, CARD, library))
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest


def cuda_sources(nest: Nest) -> list[str]:
    texts = [part.kernel.source for _, part in emit_for_cuda(nest) if isinstance(part, Launchable)]
    for k, loop in enumerate(f for f in statements(nest.body) if isinstance(f, For)):
        texts = [re.sub(rf"\b{loop.var.name}\b", f"loop{k}", text) for text in texts]
    return texts


# ---------------------------------------------------------------------- lists of one's own


@pytest.mark.parametrize("rule", CLASSES.values())
@pytest.mark.parametrize(
    "name", ["small_product", "softmax", "along", "flat", "transposed", "convolution", "any_across"]
)
def test_what_one_rule_makes_is_right(name: str, rule: type[ScheduleRule]) -> None:
    nest = ALL[name]()
    made = rule().apply(nest)
    if isinstance(made, str):
        assert "\n" not in made
        with pytest.raises(ScheduleError, match="no rule is for '"):
            schedule_by_rules(nest, [rule])
    else:
        assert rule is ElementWise or f"rules=['{rule.__name__}']" in str(made.trace)
        check(nest, made.nest, [21] if nest.sizes else ())


def test_fallback_is_for_everything() -> None:
    for name in ("small_product", "softmax", "largest_of", "rows_of_any_length", "empty", "scalar"):
        nest = ALL[name]()
        s = schedule_by_rules(nest, [Fallback])
        check(nest, s.nest, [5] if nest.sizes else ())
        assert not any(isinstance(f, For) and f.kind == "vectorized" for f in statements(s.nest.body))
        check_simulated(nest, schedule_by_rules(nest, [Fallback], "simulated").nest, [5] if nest.sizes else ())


def test_a_shorter_list_leaves_to_the_next_rule() -> None:
    nest = ALL["transposed"]()
    without = [rule for rule in default_rules() if not isinstance(rule, Transpose)]
    assert explain(nest, without).used == ("ElementWise",)
    check(nest, schedule_by_rules(nest, without).nest)


def test_the_order_decides() -> None:
    nest = ALL["along"]()
    assert explain(nest, [Fallback, Reduction]).used == ("Fallback",)
    assert explain(nest, [Reduction, Fallback]).used == ("Reduction",)
    assert "Fallback" in str(schedule_by_rules(nest, [Fallback, Reduction]).trace)


REASONS: dict[tuple[str, type[ScheduleRule]], str] = {
    ("flat", Matmul): "no contraction: block 'y' has no reduction axis",
    ("along", Matmul): "no product of matrices: block 'y' does not sum up products over axes of their own",
    ("few_rows", GEMV): "no product of a matrix and a vector: block 'c' multiplies two matrices",
    ("few_rows", Convolution): "no windows: block 'c' multiplies two matrices",
    ("convolution", Matmul): "no product of matrices: block 'y' has an index of both a spatial and a reduction axis",
    ("flat", Reduction): "no reduction: block 'y' has no reduction axis",
    ("along", GeneralReduction): "no rows of several blocks: 'y' is the only one",
    ("few_rows", GeneralReduction): "no rows: contraction 'c' would read its operands anew for each",
    ("flat", Transpose): "no transpose: what block 'y' reads lies as it writes, or in no whole tiles",
    ("along", ElementWise): "not element by element: block 'y' has a reduction axis",
    ("softmax", ElementWise): "not element by element: block 'largest' has a reduction axis",
    (
        "softmax",
        Reduction,
    ): "no tiles with what follows: 'e', 'total', 'y' would have to take each result of 'largest' by itself",
}


@pytest.mark.parametrize(("name", "rule"), REASONS)
def test_a_rule_says_why_it_is_not_for_a_program(name: str, rule: type[ScheduleRule]) -> None:
    assert rule().apply(ALL[name]()) == REASONS[name, rule]


class Halves(ScheduleRule):
    """A rule of a user's own."""

    def apply(self, nest: Nest, target: str = "cpu") -> Schedule | str:
        s = Schedule(nest)
        loops = s.get_loops(s.get_child_blocks(s.get_block("root"))[0])
        if len(loops) != 1:
            return f"there are {len(loops)} loops"
        outer, _ = s.split(loops[0], [2, None])
        s.bind(outer, "blockIdx.x") if target == "cuda" else s.parallel(outer)
        return s


ROW = read("""
@program
def row(A: Buffer[(64,), "float32"], B: Buffer[(64,), "float32"]):
    for i in serial(64):
        with block("B"):
            v = axis.spatial(64, i)
            B[v] = A[v] + 1.0
""")


def in_vectors(s: Schedule) -> None:
    s.vectorize(s.get_loops(s.get_child_blocks(s.get_block("root"))[0])[0])


def test_rules_of_ones_own_are_classes_and_functions() -> None:
    s = schedule_by_rules(ROW, [Halves, *default_rules()])
    assert [step.primitive for step in s.trace.steps][-2:] == ["split", "parallel"]
    assert s.trace.replay(ROW).nest == s.nest
    check(ROW, s.nest)
    assert "blockIdx.x" in str(schedule_by_rules(ROW, [Halves(), *default_rules()], "cuda").trace)
    assert schedule_by_rules(ROW, [in_vectors]).trace.steps[-1].primitive == "vectorize"
    softmax = ALL["softmax"]()
    assert "GeneralReduction" in str(schedule_by_rules(softmax, [Halves, in_vectors, *default_rules()]).trace)
    text = str(explain(ALL["flat"](), [Halves, *default_rules()]))
    assert "Halves            there are 3 loops" in text
    assert "ElementWise       used" in text


def test_the_compilers_rules_stay_together_around_one_of_ones_own() -> None:
    nest = ROWS["channel_softmax"]()
    apart = [Reduction, Halves, ElementWise, GeneralReduction]
    together = [Reduction, ElementWise, GeneralReduction]
    assert schedule_by_rules(nest, apart, "cuda").nest == schedule_by_rules(nest, together, "cuda").nest


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="3 is no rule"):
        schedule_by_rules(ROW, [3])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="Nothing gave NoneType: a Schedule, or a reason, is expected"):
        schedule_by_rules(ROW, [Nothing])
    with pytest.raises(NotImplementedError, match=r"Empty is a rule without apply"):
        schedule_by_rules(ROW, [Empty])
    with pytest.raises(ScheduleError, match="no rule is for 'row': there are none"):
        schedule_by_rules(ROW, [])
    with pytest.raises(ScheduleError, match="no rule is for 'row': refuse: not today"):
        schedule_by_rules(ROW, [refuse])
    with pytest.raises(UsageError, match="the rule five gave 5: nothing is expected of a function"):
        schedule_by_rules(ROW, [five])
    with pytest.raises(ScheduleError, match="by_rule: there is no rule 'Matmull'; did you mean"):
        Schedule(ROW).by_rule(rules=["Matmull"])
    with pytest.raises(ScheduleError, match=r"by_rule: rules='Matmul'; expected Sequence"):
        Schedule(ROW).by_rule(rules="Matmul")


class Nothing(ScheduleRule):
    def apply(self, nest: Nest, target: str = "cpu") -> Schedule | str:
        return None  # type: ignore[return-value]


class Empty(ScheduleRule):
    pass


def five(s: Schedule) -> int:
    return 5


def refuse(s: Schedule) -> str:
    return "not today"
