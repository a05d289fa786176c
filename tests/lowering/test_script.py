"""Programs are read as they are printed."""

from graphopt.lowering.script import read, show

MM_RELU = '''\
@program
def mm_relu(A: Buffer[(128, 128), "float32"], B: Buffer[(128, 128), "float32"], C: Buffer[(128, 128), "float32"]):
    Y = alloc((128, 128), "float32")
    for i, j, k in grid(128, 128, 128):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i_1, j_1 in grid(128, 128):
        with block("C"):
            vi_1, vj_1 = axis.remap("SS", [i_1, j_1])
            C[vi_1, vj_1] = max(Y[vi_1, vj_1], 0.0)
'''


def test_a_printed_program_is_read_as_itself() -> None:
    nest = read(MM_RELU)
    assert show(nest) == MM_RELU
    assert read(show(nest)) == nest
