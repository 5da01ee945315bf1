"""How a program's call is written: few operands in a concat, the arena taken out once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import tvm
from dialect_numpy import run as reference
from integer_models import IntegerNet
from stage_runs import after_stages
from tvm import relax
from tvm.ir import Tuple, TupleGetItem

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.joining import MOST_JOINED, few
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import run_vm

INPUTS = 2 * MOST_JOINED + 5


def test_few_parts() -> None:
    x = relax.Var("x", relax.TensorType((1,), "int8"))
    sizes: list[int] = []

    def join(parts: object) -> relax.Expr:
        sizes.append(len(list(parts)))  # type: ignore[call-overload]
        return x

    assert len(few([x] * MOST_JOINED, join)) == MOST_JOINED and not sizes
    assert len(few([x] * (MOST_JOINED + 1), join)) == 2 and sizes == [MOST_JOINED, 1]
    assert len(few([x] * MOST_JOINED**2 + [x], join)) == 2
    assert max(sizes) == MOST_JOINED


def test_a_region_of_many_inputs_and_results() -> None:
    """Every fifth sum is a result, and is read on."""
    net = IntegerNet(**{f"x{n}": (1, 16, 2, 2) for n in range(INPUTS)})
    total, results = net.params[0], []
    for place, other in enumerate(net.params[1:]):
        total = net.residual(total, other, name=f"sum_{place}")
        results += [total] if place % 5 == 0 else []
    mod = net.module(*results, total)
    lowered = {planned.name: given for planned, given in after_stages(mod)}["LowerRegions"]
    bindings = straight_bindings(lowered["main"])
    joined = [b.value.args[0] for b in bindings if op_name(b.value) == "relax.concat"]
    sizes = [len(parts.fields) for parts in joined if isinstance(parts, Tuple)]
    assert max(sizes) <= MOST_JOINED and sum(sizes) >= INPUTS
    taken = Counter(b.value.tuple_value for b in bindings if isinstance(b.value, TupleGetItem))
    assert set(taken.values()) == {1}
    inputs = net.inputs()
    compiled = compile_module(mod, VTAConfig.preset("sim"))
    got = run_vm(relax.VirtualMachine(compiled.exe, tvm.cpu()), inputs)
    for result, want in zip(got, reference(mod, *inputs)["result"], strict=True):
        np.testing.assert_array_equal(result, want)
