"""Products of matrices go to the function that takes the least by the target's prices, and that is said."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.compile import linked_for
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.library_dispatch import MatrixProduct, called_product, fastest, ways
from graphopt.lowering.cpu.weight_packing import laid_out
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import compute, nest, placeholder
from graphopt.lowering.loops.expressions import Const, Expr, Var
from graphopt.lowering.loops.nest import Invoke, Nest, statements
from graphopt.run.settings import Settings
from graphopt.target import CPU, ProductPrices
from graphopt.tools.alternatives_report import choices


def nest_of(m: Expr, k: Expr, n: Expr, form: str = "nn", dtype: str = "float32") -> Nest:
    """``op(a) @ op(b)``."""
    a = placeholder((m, k) if form[0] == "n" else (k, m), dtype, "a")
    b = placeholder((k, n) if form[1] == "n" else (n, k), dtype, "b")
    step = te.reduce_axis(k)

    def element(i: Expr, j: Expr) -> te.ReduceStage:
        x = a[i, step.var] if form[0] == "n" else a[step.var, i]
        return te.sum(x * (b[step.var, j] if form[1] == "n" else b[j, step.var]), step)

    return nest("kernel", [a, b], [compute((m, n), element)], [e for e in (m, k, n) if isinstance(e, Var)])


def product_of(written: Nest) -> MatrixProduct:
    found = chains(written)
    assert found is not None
    made = called_product(found, written)
    assert made is not None
    return made


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", [32, 64, 128, 256, 1024, 4096])
def test_the_function_that_takes_the_least_is_called(size, form):
    written = nest_of(Const(size), Const(size), Const(size), form)
    seconds = ways(product_of(written))
    assert set(seconds) == {"gemm", "product"}
    assert fastest(product_of(written)) == min(seconds, key=seconds.__getitem__)
    body = scheduled(written).body
    calls = {s.intrinsic for s in statements(body) if isinstance(s, Invoke)}
    assert calls == {f"{fastest(product_of(written))}_{form}_float32"}


@pytest.mark.usefixtures("avx512")
def test_what_is_measured_decides():
    def chosen(m: int, k: int, n: int, form: str = "nn") -> str:
        return fastest(product_of(nest_of(Const(m), Const(k), Const(n), form)))

    assert [chosen(n, n, n) for n in (32, 64, 128, 256, 1024)] == ["gemm", "gemm", "product", "product", "gemm"]
    assert chosen(64, 64, 64, "nt") == "product"  # the library arranges what is transposed, however small
    assert chosen(128, 64, 128, "nt") == "product"


def test_prices_of_the_target_decide():
    written = nest_of(Const(256), Const(256), Const(256))
    dear = {name: ProductPrices(price.call, 2 * price.step, price.moved) for name, price in CPU.prices.products.items()}
    for name, other in (("gemm", "product"), ("product", "gemm")):
        prices = {other: dear[other]}
        assert fastest(product_of(written), prices) == name
        body = scheduled(written, prices).body
        assert {s.intrinsic for s in statements(body) if isinstance(s, Invoke)} == {f"{name}_nn_float32"}
        target = replace(CPU, prices=replace(CPU.prices, products=prices))
        settings = Settings(target=target, optimize=False)
        assert f"{name}_nn_float32" in "".join(str(p.nest) for p in linked_for(model(constant=False), settings).parts)
        (told,) = (c for c in choices(model(constant=False), target) if c.kind == "product")
        assert told.chosen.how == name


def test_more_work_takes_longer_and_wider_elements_too():
    def seconds(m: Expr, dtype: str = "float32") -> dict[str, float]:
        return ways(product_of(nest_of(m, Const(100), Const(200), "nn", dtype)))

    for name in ("gemm", "product"):
        assert seconds(Const(50))[name] < seconds(Const(60))[name] < seconds(Const(60), "float64")[name]
    assert set(seconds(Var("m"))) == {"gemm", "product"}


def test_panels_are_for_our_own_alone():
    written = nest_of(Var("m"), Const(512), Const(512))
    laid = laid_out(written, [written.buffers[1]])
    assert laid is not None
    assert list(ways(product_of(laid.nest))) == ["product"]


def model(constant: bool) -> onnx.ModelProto:
    w = numpy_helper.from_array(np.ones((128, 128), np.float32), "w")
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [128, 128]) for n in ("x", "w")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [128, 128])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", inputs[: 2 - constant], outputs, [w] if constant else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


@pytest.mark.parametrize(("constant", "others"), [(False, ["gemm"]), (True, [])])
def test_choices_tell_what_else_there_was(constant, others):
    (told,) = (c for c in choices(model(constant)) if c.kind == "product")
    assert (told.value, told.chosen.what, told.chosen.how) == ("y", "MatMul", "product")
    assert [o.how for o in told.others] == others
    assert all(o.seconds >= told.chosen.seconds > 0 for o in told.others)
