"""A machine of one's own: is it worth its SRAM? Estimate, run and compare it with a preset.
`custom_machine.py [--json]`
"""

import json
import sys

import numpy as np
from tvm import relax

import vta_byoc as vta
import vta_byoc.partition

base = vta.VTAConfig.preset("pynq").to_dict()
machines = {
    "pynq": vta.VTAConfig.from_dict(base),
    "small sums": vta.VTAConfig.from_dict({**base, "LOG_ACC_BUFF_SIZE": 12}),
    "a port of 16 bytes": vta.VTAConfig.from_dict(
        {**base, "TIMING": {**base["TIMING"], "port_bytes": 16}}
    ),
}

rng = np.random.default_rng(0)
x = relax.Var("x", relax.TensorType((1, 32, 14, 14), "float32"))
weight = relax.const((rng.standard_normal((64, 32, 3, 3)) / 17).astype("float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x]):
    with builder.dataflow():
        convolved = builder.emit(relax.op.nn.conv2d(x, weight, padding=1), "convolved")
        y = builder.emit_output(relax.op.nn.relu(convolved), "y")
    builder.emit_func_output(y)
sample = rng.standard_normal((1, 32, 14, 14)).astype("float32")

rows = {}
for name, config in machines.items():
    qmod = vta.quantize(builder.get(), calibration=[sample], config=config)
    pmod = vta.partition_for_vta(qmod, config=config)
    placed = vta.partition.placements(pmod)
    profile = vta.profile(vta.build(pmod, config=config), sample)
    rows[name] = {
        "estimated_cycles": sum(row.cycles for row in placed),
        "bytes": sum(n for key, n in profile.counters.items() if key.endswith("nbytes")),
        "gemm_steps": profile.counters["gemm_counter"],
        "output": profile.outputs[0],
    }
outputs = [row.pop("output") for row in rows.values()]
assert all(np.array_equal(outputs[0], other) for other in outputs)  # integers are the model's

if "--json" in sys.argv:
    print(json.dumps(rows))
else:
    for name, row in rows.items():
        print(f"{name:26}", "  ".join(f"{key} {value:>10,}" for key, value in row.items()))
    try:
        vta.VTAConfig.from_dict({**base, "LOG_BLOCK": 3})
    except vta.VTAError as error:
        print(f"one that cannot be built: {error}")
