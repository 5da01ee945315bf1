"""A device of one's own: the simulator in portable code, which notes the machines it is built for.
`custom_device.py [--json]`
"""

import json
import sys

import numpy as np
from tvm import relax

import vta_byoc as vta
import vta_byoc.extend
import vta_byoc.hw.sim.devices
import vta_byoc.testing


class Noted:
    """A driver is what `vta_byoc.extend.register_device` says; it may use another one's module."""

    name = "noted"
    about = "the simulator without instructions of one processor, with a log of its machines"
    computes = True  # results are results, not zeros
    timed = False  # runs have no cycles of the timing model

    def __init__(self):
        self.simulator = vta.hw.sim.devices.Simulator("portable", "", dot="portable")
        self.machines = []

    def module(self, config, target=None):
        """A module whose function runs programs of `config`, compiled for `target`."""
        self.machines.append(config.target)
        return self.simulator.module(config, target)


device = Noted()
vta.extend.register_device(device)
conformance = vta.testing.check_device(device, cases=3)  # against the simulator, on random programs

rng = np.random.default_rng(0)
x = relax.Var("x", relax.TensorType((1, 16, 8, 8), "float32"))
weight = relax.const((rng.standard_normal((32, 16, 3, 3)) / 12).astype("float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(relax.op.nn.conv2d(x, weight, padding=1), "y")
    builder.emit_func_output(y)
sample = rng.standard_normal((1, 16, 8, 8)).astype("float32")
config = vta.VTAConfig.preset("pynq")
qmod = vta.quantize(builder.get(), calibration=[sample], config=config)

device.machines.clear()
runs = {
    name: vta.profile(vta.build(qmod, config=config, device=name), sample)
    for name in ("sim", "noted")
}
assert np.array_equal(runs["sim"].outputs[0], runs["noted"].outputs[0])
assert runs["sim"].counters == runs["noted"].counters
found = {"cases": conformance.cases, "machines": device.machines, **runs["noted"].counters}
if "--json" in sys.argv:
    print(json.dumps(found))
else:
    print(conformance)
    print(
        f"built for {', '.join(device.machines)}; the same outputs as sim, and the same counters:"
    )
    print(runs["noted"].counters)
