"""Memory scopes by consumers for a target of one's own: a GPU whose textures serve convolutions.
`texture_scopes.py [--json]`
"""

import json
import sys

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

import vta_byoc.scopes as scopes

rng = np.random.default_rng(0)
x = relax.Var("x", relax.TensorType((1, 32, 14, 14), "float32"))
weights = [relax.const((rng.standard_normal((32, 32, 3, 3)) / 17).astype("float32")) for _ in "abc"]
builder = relax.BlockBuilder()
with builder.function("main", [x]):
    with builder.dataflow():
        first = builder.emit(relax.op.nn.conv2d(x, weights[0], padding=1), "first")
        second = builder.emit(relax.op.nn.conv2d(first, weights[1], padding=1), "second")
        third = builder.emit(relax.op.nn.conv2d(second, weights[2], padding=1), "third")
        y = builder.emit_output(relax.op.add(third, first), "y")
    builder.emit_func_output(y)

# What memories there are, and who reads and writes them.
UNITS = (scopes.HOST, "gpu")
TEXTURE, TEXTURE_WEIGHT = "global.texture", "global.texture-weight"
table = scopes.ScopeTable(
    "a GPU with textures",
    (
        scopes.Scope(scopes.GLOBAL, readers=UNITS, writers=UNITS),
        scopes.Scope(
            TEXTURE, capacity=1 << 20, dtypes=("float32",), readers=("gpu",), writers=UNITS
        ),
        scopes.Scope(TEXTURE_WEIGHT, readers=("gpu",), writers=(scopes.HOST,)),
    ),
)


# In which of them a call wants its operands, and can write its result.
def demand(site):
    if site.callee == "relax.nn.conv2d":
        return scopes.Needs((TEXTURE, TEXTURE_WEIGHT), (TEXTURE, scopes.GLOBAL), "gpu")
    if site.callee.startswith("add"):
        return scopes.Needs((scopes.GLOBAL, scopes.GLOBAL), (scopes.GLOBAL,), "gpu")
    return None


mod = relax.transform.LegalizeOps(skip_ops=["relax.nn.conv2d"])(builder.get())
record = scopes.ScopeRecord()
target = Target({"kind": "ext_dev", "keys": ["gpu"]})
placed = scopes.memory_scopes(demand, table, target, record=record)(mod)

# The values are the same, wherever they live.
given = tvm.runtime.tensor(rng.standard_normal((1, 32, 14, 14)).astype("float32"))
results = [
    relax.VirtualMachine(relax.build(each, "llvm"), tvm.cpu())["main"](given).numpy()
    for each in (mod, scopes.strip_vdevices()(placed))
]
assert np.array_equal(*results)

decisions = record.decisions["main"]
if "--json" in sys.argv:
    print(json.dumps({d.tensor: {"scope": d.scope, "copies": list(d.copies)} for d in decisions}))
else:
    for d in decisions:
        print(f"{d.tensor:12} {d.scope:22} {d.nbytes:7} {d.rule}")
