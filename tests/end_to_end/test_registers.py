"""The small networks of the tests through the simulated register files."""

from __future__ import annotations

import numpy as np
import pytest
from integer_models import IntegerNet, flatten_net, island_net, residual_net, stem_net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.protocol import DeviceDriver
from vta_byoc.hw.driver.register_driver import RegisterDriver
from vta_byoc.hw.driver.register_map import HLS
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.registry import undone
from vta_byoc.hw.sim.devices import DRIVERS, SimulatedBoard
from vta_byoc.hw.sim.simulated_registers import SimulatedRegisters
from vta_byoc.hw.testing.register_faults import DEAD_BUS, FaultyTransport
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import profile

NETS = {"residual": residual_net, "islands": island_net, "stem": stem_net, "flatten": flatten_net}
MACHINES = {"hls-registers": "pynq", "chisel-registers": "chisel"}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("device", MACHINES)
def test_networks_equal_the_simulator(name: str, device: str) -> None:
    net: IntegerNet = NETS[name]()
    mod, config = net.module(net.result), VTAConfig.preset(MACHINES[device])
    by_function = compile_module(mod, config)
    by_registers = compile_module(mod, config, device)
    for seed in (1, 2):
        wanted = profile(by_function.exe, net.inputs(seed), arenas=True)
        found = profile(by_registers.exe, net.inputs(seed), arenas=True)
        for a, b in zip(found.outputs, wanted.outputs, strict=True):
            np.testing.assert_array_equal(a, b)
        for run, other in zip(found.regions, wanted.regions, strict=True):
            assert (run.name, run.counters) == (other.name, other.counters)
            np.testing.assert_array_equal(run.arena, other.arena)


class _Broken(SimulatedBoard):
    def open(self, config: VTAConfig) -> DeviceDriver:
        transport = FaultyTransport(SimulatedRegisters(HLS, config), HLS, DEAD_BUS)
        return RegisterDriver(self.name, HLS, config, transport)


def test_an_error_of_a_device_reaches_who_runs_the_model() -> None:
    net = stem_net()
    with undone():
        DRIVERS.add("broken", _Broken("broken", "a bus where nothing answers", HLS), "a test")
        compiled = compile_module(net.module(net.result), VTAConfig.preset("pynq"), "broken")
        with pytest.raises(
            VTAError,
            match="^broken did not pass its self-test: broken: register uop at 0x2020 reads "
            "0xffffffff, as a bus does where nothing answers; load the design, switch its clock "
            "on, and check the base address$",
        ):
            profile(compiled.exe, net.inputs())
