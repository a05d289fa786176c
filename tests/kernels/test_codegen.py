"""Code that kernels share is made by its name."""

import pytest

from graphopt.errors import CompilationError
from graphopt.kernels.codegen import shared_module
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.convolution import TileForm
from graphopt.kernels.kernel import SHARED, Kernel
from graphopt.runtime.objects import Image


def test_a_name_says_what_the_code_is_made_for() -> None:
    form = TileForm("float32", 1, 16, 2, 3, 2, 3)
    assert shared_module(form.name).get_global(form.name).name == form.name


def test_shapes_of_tiles_are_functions_of_one_module() -> None:
    name = "graphopt_tile_float64_2x4_1_2_8"
    made = [f.name for f in shared_module(name).functions if f.blocks]
    assert made[0] == name
    assert len(made) == 1 + 3 * 2 + 1  # one row is multiplied by two panels at once, too


@pytest.mark.parametrize("name", ["graphopt_nothing", "graphopt_convolve_float32_16x16_2x14"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(CompilationError, match=f"no kernels share the code '{name}'"):
        shared_module(name)


def test_it_is_there_for_others_and_no_kernel() -> None:
    assert Image(compile_kernels([Kernel(TileForm("float32", 1, 16, 1, 1, 1, 1).name, (SHARED,))])).entries == ()
