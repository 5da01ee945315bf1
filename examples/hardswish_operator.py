"""An operator of one's own: hard-swish, x * clip(x + 3, 0, 6) / 6, alone and inside a network.
`hardswish_operator.py [--json]`

The integers are steps of 1/16: 48 is 3.0. A division by 6 is one by 2 and by 3: 171 / 512.
"""

import json
import sys

import numpy as np
import tvm
from tvm import relax, s_tir, te, tirx

import vta_byoc as vta
import vta_byoc.extend
import vta_byoc.schedule as vs
import vta_byoc.testing

cfg = vta.VTAConfig.preset("sim")


def hardswish(shape):
    x = te.placeholder(shape, "int8", name="x")
    wide = te.compute(shape, lambda *i: x(*i).astype("int32"), name="wide")
    again = te.compute(shape, lambda *i: x(*i).astype("int32"), name="again")
    gate = te.compute(shape, lambda *i: tirx.Max(again(*i) + 48, 0), name="gate")
    upper = te.compute(shape, lambda *i: tirx.Min(gate(*i), 96), name="upper")
    scaled = te.compute(shape, lambda *i: wide(*i) * upper(*i) * 171, name="scaled")
    wanted = te.compute(shape, lambda *i: scaled(*i) >> tirx.const(14, "int32"), name="wanted")
    clip = te.compute(shape, lambda *i: tirx.Max(tirx.Min(wanted(*i), 127), -128), name="clip")
    out = te.compute(shape, lambda *i: clip(*i).astype("int8"), name="out")
    return te.create_prim_func([x, out])


def schedule(definition, config):
    sch = s_tir.Schedule(definition)
    for name in ("gate", "upper", "scaled", "wanted", "clip"):
        sch.compute_inline(name)
    tiles, _ = sch.split(sch.fuse(*sch.get_loops("out")), [None, 8 * config.batch * config.block])
    for name in ("wide", "again"):  # the ALU overwrites its first operand
        sch.set_scope(name, 0, vs.ACC)
        sch.compute_at(name, tiles)
        vs.dma_copy(sch, name)
    vs.alu(sch, "out")
    vs.dma_copy(sch, "out")
    return sch


# Alone: in shapes that are drawn, bit for bit, and close to the real function.
shape = (1, 16, 8, 8)
found = vta.testing.check_kernel(
    schedule, lambda rng, _: hardswish((8 * int(rng.integers(1, 4)), 16)), machines=[cfg], cases=3
)
kernel = vs.kernel(schedule(hardswish(shape), cfg), config=cfg, name="hardswish")
(x,) = vs.random_inputs(kernel.func)
real = x / 16 * np.clip(x / 16 + 3, 0, 6) / 6
error = np.abs(kernel(x) / 16 - np.clip(real, -8, 127 / 16)).max()

# Inside a network: between two pools, by its name.
vta.extend.register_kernel("hardswish", schedule)
kind, builder = relax.TensorType(shape, "int8"), relax.BlockBuilder()
function = builder.add_func(vta.extend.with_kernel(hardswish(shape), "hardswish"), "activation")
image = relax.Var("image", kind)
with builder.function("main", [image]):
    with builder.dataflow():
        pooled = builder.emit(relax.op.nn.max_pool2d(image, (3, 3), padding=(1, 1)), "pooled")
        active = builder.emit(relax.call_tir(function, [pooled], out_ty=kind), "active")
        last = relax.op.nn.max_pool2d(active, (2, 2), strides=(2, 2))
        result = builder.emit_output(last, "result")
    builder.emit_func_output(result)
mod = builder.get()
profile = vta.profile(vta.build(vta.partition_for_vta(mod, config=cfg), config=cfg), x)
host = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x))
assert np.array_equal(profile.outputs[0], host.numpy())

facts = {"counters": list(kernel.counters.values()), "error": float(error), "cases": found.cases}
facts["regions"] = len(profile.regions)
if "--json" in sys.argv:
    print(json.dumps(facts))
else:
    print(vs.explain(kernel.func, cfg, definition=hardswish(shape)))
    print(f"{found}\nlargest error {error:.3f}, a step is {1 / 16}; in the network bit for bit")
    print("\n".join(f"{run.name}: {run.counters}" for run in profile.regions))
