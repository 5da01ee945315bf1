"""Mistakes in schedules of one's own: each message has the block, the fact and the next step.

The texts are in `golden/schedule_mistakes.txt`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from own_schedules import CHAIN, Layer, Recipe, right
from script_nests import GEMM_LOOPS, LOAD, LOAD_D, MAC, STORE, X8, A, X, Y, function, nest, parse
from script_nests import load as loading
from tvm import s_tir, te, tirx

import vta_byoc.schedule as vs
from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError, VTAWarning

POOR = dataclasses.replace(
    VTAConfig(), capabilities=dataclasses.replace(Capabilities(), mul=False, acc_8bit=False)
)
WHOLE = (1, 4, 1, 16)


# ---------------------------------------------------------------- schedules with one thing wrong
def not_stated(*blocks: str) -> s_tir.Schedule:
    return Recipe().stage().inline().tiles().state(*blocks).sch


def annotated(block: str, pragma: str) -> s_tir.Schedule:
    sch = not_stated(block)
    sch.annotate(sch.get_loops(block)[-1], PRAGMA_KEY, pragma)
    return sch


def of(**changes: Any) -> s_tir.Schedule:
    """The right schedule of a layer that computes something else."""
    return right(Layer(**changes)).sch


def unstated(**changes: Any) -> s_tir.Schedule:
    return Recipe(Layer(**changes)).stage().inline().tiles().sch


def weight_in_dram() -> s_tir.Schedule:
    recipe = Recipe()
    recipe.sch.cache_read("acc", 0, vs.INP)
    recipe.sch.set_scope("acc", 0, vs.ACC)
    loops = recipe.inline().sch.get_loops("acc")
    recipe.sch.decompose_reduction("acc", loops[4])
    return recipe.sch


def chain_in(scope: str) -> Recipe:
    """Every step of the chain in a tensor of its own."""
    recipe = Recipe().stage()
    for name in CHAIN:
        recipe.sch.set_scope(name, 0, scope)
    return recipe


def stale() -> tuple[s_tir.Schedule, Any]:
    """A block that was inlined away."""
    recipe = Recipe().stage()
    block = recipe.sch.get_sblock("shifted")
    return recipe.inline().sch, block


def load_inside() -> s_tir.Schedule:
    """The load is computed where the sum has all loops."""
    recipe = Recipe().stage().inline().tiles()
    recipe.sch.compute_at(recipe.load, recipe.sch.get_loops("acc_update")[-1])
    return recipe.sch


def without_reorder() -> s_tir.Schedule:
    """The reduction's tiles stay inside of the lanes."""
    recipe = Recipe().stage().inline()
    sch = recipe.sch
    sch.decompose_reduction("acc", sch.get_loops("acc")[4])
    return sch


def lanes_outside() -> s_tir.Schedule:
    """Half of the lanes at a time."""
    recipe = Recipe().stage().inline()
    sch = recipe.sch
    n, o, b, k = sch.get_loops("out")
    half, rest = sch.split(k, [None, 8])
    sch.reorder(half, n, o, b, rest)
    sch.compute_at("acc", half, preserve_unit_loops=True)
    an, ao, ab, ak, rc, rk = sch.get_loops("acc")[-6:]
    sch.reorder(rc, an, ao, ab, ak, rk)
    for block in (recipe.load, recipe.fetch):
        sch.compute_at(block, rc)
    sch.decompose_reduction("acc", rc)
    return recipe.state().sch


def threads(*names: str) -> s_tir.Schedule:
    return Recipe().stage().inline().tiles(bind=names).state().sch


def too_large() -> s_tir.Schedule:
    return Recipe(Layer(inputs=64, outputs=64), tile=64).stage().inline().tiles().state().sch


def gemm_of(*nests: str) -> tirx.PrimFunc:
    """A GEMM of x and f after ``nests``, and its store."""
    buffers = "d:inp:4,1,16 w:wgt:1,16,16 a:acc:4,1,16"
    mac = nest("mac", "gemm", GEMM_LOOPS, MAC)
    return parse(function(f"{X8} f:int8:1,16,16 {Y}", buffers, *nests, mac, STORE))


CLEAR = nest("clear", "gemm", "i:4 k:16", "a[i, 0, k] = 0")
LOAD_W = nest("load_w", "dma_copy", "o:16 k:16", "w[0, o, k] = f[0, o, k]")


def int32(value: Any) -> Any:
    return value.astype("int32")


def square(data: Any, _weight: Any, i: Any) -> Any:
    return int32(data[i[0], i[4], i[2], i[5]]) * int32(data[i[0], i[4], i[2], i[5]])


def only_sum(data: Any, weight: Any, i: Any) -> Any:
    return int32(data[i[0], i[4], i[2], i[5]]) + int32(weight[i[1], i[4], i[3], i[5]])


def transposed(data: Any, weight: Any, i: Any) -> Any:
    return int32(data[i[0], i[4], i[2], i[5]]) * int32(weight[i[1], i[4], i[5], i[3]])


def squares() -> s_tir.Schedule:
    """A sum over the input alone."""
    recipe = Recipe(Layer(product=square))
    recipe.sch.cache_read("acc", 0, vs.INP)
    recipe.sch.set_scope("acc", 0, vs.ACC)
    recipe.inline().sch.decompose_reduction("acc", recipe.sch.get_loops("acc")[4])
    return recipe.sch


def warned(sch: s_tir.Schedule) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", VTAWarning)
        vs.kernel(sch, name="layer")


REFUSED: dict[str, Callable[[], object]] = {
    # ------------------------------------------------------------ stating what a nest is
    "a sum with its init": lambda: vs.gemm(Recipe().stage().inline().sch, "acc"),
    "a store called gemm": lambda: vs.gemm(not_stated("data_local.inp_buffer"), "out"),
    "a gemm called dma_copy": lambda: vs.dma_copy(right().sch, "acc_update"),
    "a gemm called alu": lambda: vs.alu(right().sch, "acc_update"),
    "a copy called alu": lambda: vs.alu(right().sch, "weight_local.wgt_buffer"),
    "a block that is not there": lambda: vs.gemm(right().sch, "accu"),
    "a block that was inlined": lambda: vs.gemm(*stale()),
    "an intermediate in DRAM": lambda: vs.alu(Recipe().stage().sch, "shifted"),
    "an intermediate in the input buffer": lambda: vs.alu(chain_in(vs.INP).sch, "shifted"),
    "a scope that is none": lambda: vs.alu(chain_in("local.vta").sch, "shifted"),
    "weights left in DRAM": lambda: vs.gemm(weight_in_dram(), "acc_update"),
    "a sum of squares": lambda: vs.gemm(squares(), "acc_update"),
    "a sum without a product": lambda: vs.gemm(unstated(product=only_sum), "acc_update"),
    "a load where all loops are": lambda: vs.dma_copy(load_inside(), "data_local.inp_buffer"),
    "a reduction inside of the lanes": lambda: vs.gemm(without_reorder(), "acc_init"),
    "a store from DRAM": lambda: vs.dma_copy(Recipe().stage().sch, "out"),
    # ------------------------------------------------------------ statements
    "a load that is not stated": lambda: vs.kernel(not_stated("weight_local.wgt_buffer")),
    "a store that is not stated": lambda: vs.kernel(not_stated("out")),
    "a gemm stated as alu": lambda: vs.kernel(annotated("acc_update", "alu")),
    "a pragma that is none": lambda: vs.kernel(annotated("acc_init", "gem")),
    # ------------------------------------------------------------ what the machine cannot do
    "tiles too large": lambda: vs.kernel(too_large()),
    "lanes outside of the nest": lambda: vs.kernel(lanes_outside()),
    "weights not transposed": lambda: vs.kernel(of(product=transposed)),
    "a thread of a GPU": lambda: vs.kernel(threads("threadIdx.x")),
    "two virtual threads": lambda: vs.kernel(threads("vthread.x", "vthread.y")),
    "no MUL": lambda: vs.kernel(of(shift=lambda v: v * 3), config=POOR),
    "a large constant": lambda: vs.kernel(of(shift=lambda v: v + 100_000)),
    "a quotient": lambda: vs.kernel(of(shift=lambda v: tirx.truncdiv(v, 3))),
    "a result of int32": lambda: vs.kernel(of(dtype="int32")),
    "padding with ones": lambda: vs.kernel(
        parse(function(f"{X} {Y}", A, loading(value="T.if_then_else(i < 3, x[i, 0, k], 1)"), STORE))
    ),
    # ------------------------------------------------------------ what is missing
    "a sum from nothing": lambda: vs.kernel(gemm_of(LOAD_D, LOAD_W)),
    "weights that nobody loads": lambda: vs.kernel(gemm_of(CLEAR, LOAD_D)),
    "the output first": lambda: vs.kernel(parse(function(f"{Y} {X}", A, LOAD, STORE))),
    # ------------------------------------------------------------ values
    "no clip": lambda: warned(of(clip=lambda v: v)),
    "no shift and no clip": lambda: warned(of(shift=lambda v: v + 1, floor=lambda v: v)),
}

def any_rows() -> tirx.PrimFunc:
    a = te.placeholder((tirx.Var("n", "int32"), 16), "int8", name="a")
    return te.create_prim_func([a, te.compute(a.shape, lambda *i: a(*i), name="b")])


ARGUMENTS: dict[str, Callable[[], object]] = {
    "no schedule": lambda: vs.kernel("main"),  # type: ignore[arg-type]
    "no parameters": lambda: vs.kernel(tirx.PrimFunc([], tirx.Evaluate(0))),
    "no blocks": lambda: vs.kernel(right().sch.mod["main"].with_body(tirx.Evaluate(0))),
    "floats": lambda: vs.kernel(unstated(operand="float32")),
    "a shape that is not constant": lambda: vs.kernel(any_rows()),
    "a shape that is not constant, explained": lambda: vs.explain(any_rows()),
    "random inputs of any shape": lambda: vs.random_inputs(any_rows()),
    "two blocks of one name": lambda: vs.kernel(parse(function(f"{X} {Y}", A, LOAD, LOAD, STORE))),
    "int32 data": lambda: vs.dma_copy(unstated(operand="int32"), "data_local.inp_buffer"),
    "a constant of floats": lambda: vs.kernel(
        right().sch, constants={"weight": np.zeros((4, 4, 16, 16), np.float32)}
    ),
    "a constant that is the output": lambda: vs.kernel(
        right().sch, constants={"out": np.zeros(WHOLE, np.int8)}
    ),
    "slots of no scope": lambda: vs.kernel(right().sch, slots={"acc": 1}),
    "no slots": lambda: vs.kernel(right().sch, slots=0),
    "micro-ops of no kind": lambda: vs.kernel(right().sch, micro_ops="few"),
    "too few arrays": lambda: vs.kernel(right().sch)(np.zeros(WHOLE, np.int8)),
    "an array of another dtype": lambda: vs.kernel(right().sch)(
        np.zeros(WHOLE, np.int8), np.zeros((4, 4, 16, 16), np.int32)
    ),
    "no device": lambda: vs.kernel(right().sch)(*vs.random_inputs(right().sch), device="fpga"),
    "another number of arrays on the host": lambda: vs.reference(right().sch),
    "a shape of another array on the host": lambda: vs.reference(
        right().sch, np.zeros(3, np.int8), np.zeros(3, np.int8)
    ),
    "random floats": lambda: vs.random_inputs(Layer(operand="float32").definition()),
}


def message(make: Callable[[], object]) -> str:
    with pytest.raises((VTAError, VTAWarning)) as caught:
        make()
    return str(caught.value)


def test_the_right_schedule_is_right() -> None:
    recipe = right()
    inputs = vs.random_inputs(recipe.definition)
    expected = vs.reference(recipe.definition, *inputs)
    assert np.array_equal(vs.kernel(recipe.sch)(*inputs), expected)


def test_every_mistake_has_its_answer(golden: Callable[[str, str], None]) -> None:
    found = {name: message(make) for name, make in {**REFUSED, **ARGUMENTS}.items()}
    golden("schedule_mistakes.txt", "".join(f"{name}\n    {found[name]}\n" for name in found))


@pytest.mark.parametrize("name", REFUSED)
def test_block_fact_and_next_step(name: str) -> None:
    text = message(REFUSED[name])
    assert "\n" not in text and "; " in text
    assert text.startswith(("block ", "kernel layer: block "))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_one_line_with_a_next_step(name: str) -> None:
    text = message(ARGUMENTS[name])
    assert "\n" not in text and "; " in text


@pytest.mark.unverified
def test_what_only_the_verifier_sees() -> None:
    """The block that clears the accumulators comes behind the sum."""
    buffers = "d:inp:4,1,16 w:wgt:1,16,16 a:acc:4,1,16"
    nests = (LOAD_D, LOAD_W, nest("mac", "gemm", GEMM_LOOPS, MAC), CLEAR, STORE)
    assert message(
        lambda: vs.kernel(parse(function(f"{X8} f:int8:1,16,16 {Y}", buffers, *nests)))
    ) == (
        "block mac is not safe to run: 1 violation: instruction 3 of layer kernel (GEMM MAC uop "
        "0-1 iter 1,4 dst 0,1 src 0,1 wgt 0,0 [pop_prev]): uninitialised: reads ACC element 0; "
        "nothing wrote it before; load or compute it first; see that a block before it writes "
        "everything that it reads on chip"
    )


def test_how_many() -> None:
    assert len(REFUSED) >= 20
