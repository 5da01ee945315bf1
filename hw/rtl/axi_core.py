"""The core with the buses of a board: a master of AXI4 and a slave of AXI4-Lite."""

from __future__ import annotations

from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.rtl.axi_lite import AxiLite, lite_ports
from vta_byoc.hw.rtl.core import Core, core_ports
from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, TOP, CoreParameters

SLAVE, MASTER = "s_axi_", "m_axi_"
"""What names of ports begin with: Vivado joins them to interfaces by these."""
INCR = 0b01
"""Bursts of rising addresses."""
NORMAL = 0b0011
"""Memory that may be buffered and whose bursts may be joined; not cached."""


def master_ports(core: CoreParameters) -> dict[str, In | Out]:
    """The ports of the master of AXI4."""
    ports: dict[str, In | Out] = {}
    for channel in ("aw", "ar"):
        ports |= {
            f"{channel}addr": Out(ADDRESS_BITS),
            f"{channel}len": Out(8),
            f"{channel}size": Out(3),
            f"{channel}burst": Out(2),
            f"{channel}lock": Out(1),
            f"{channel}cache": Out(4),
            f"{channel}prot": Out(3),
            f"{channel}qos": Out(4),
            f"{channel}valid": Out(1),
            f"{channel}ready": In(1),
        }
    ports |= {
        "wdata": Out(core.port_bits),
        "wstrb": Out(core.port_bytes),
        "wlast": Out(1),
        "wvalid": Out(1),
        "wready": In(1),
        "bresp": In(2),
        "bvalid": In(1),
        "bready": Out(1),
        "rdata": In(core.port_bits),
        "rresp": In(2),
        "rlast": In(1),
        "rvalid": In(1),
        "rready": Out(1),
    }
    return {f"{MASTER}{name}": port for name, port in ports.items()}


class AxiCore(wiring.Component):
    """The core behind `m_axi_` (AXI4, one identifier, INCR bursts) and `s_axi_` (AXI4-Lite).

    With `apart` the core is the Verilog module TOP, which is not made here.
    """

    def __init__(self, config: VTAConfig, *, packed: bool = True, apart: bool = False) -> None:
        self.config, self.packed, self.apart = config, packed, apart
        self.core = CoreParameters.of(config)
        super().__init__({**lite_ports(SLAVE), **master_ports(self.core)})

    def elaborate(self, platform: object) -> Module:
        """The core, its registers behind AXI4-Lite, and the constants of the master."""
        m = Module()
        m.submodules.lite = lite = AxiLite()
        core = self._core(m)
        m.d.comb += [
            core["reg_address"].eq(lite.address),
            core["reg_write"].eq(lite.write),
            core["reg_write_data"].eq(lite.write_data),
            lite.read_data.eq(core["reg_read_data"]),
        ]
        for name, port in lite_ports().items():
            outer, inner = getattr(self, f"{SLAVE}{name}"), getattr(lite, name)
            m.d.comb += outer.eq(inner) if port.flow == Out else inner.eq(outer)
        for channel in ("aw", "ar"):
            self._request(m, core, channel)
        for name in ("wdata", "wvalid", "wready", "wlast", "bvalid", "bready", "bresp"):
            self._join(m, core, name)
        for name in ("rdata", "rvalid", "rready", "rresp"):
            self._join(m, core, name)
        m.d.comb += getattr(self, f"{MASTER}wstrb").eq(core["w_strobe"])
        return m

    def _core(self, m: Module) -> dict[str, Value]:
        """The ports of the core by name."""
        if not self.apart:
            m.submodules.core = made = Core(self.config, packed=self.packed)
            return {name: getattr(made, name) for name in core_ports(self.core)}
        ports = {n: (p.flow, Signal(p.shape, name=n)) for n, p in core_ports(self.core).items()}
        joined = {f"{'o' if flow == Out else 'i'}_{n}": s for n, (flow, s) in ports.items()}
        m.submodules.core = Instance(TOP, i_clk=ClockSignal(), i_rst=ResetSignal(), **joined)
        return {name: signal for name, (_, signal) in ports.items()}

    def _join(self, m: Module, core: dict[str, Value], name: str) -> None:
        """One port of a channel whose name in the core has its channel apart."""
        outer, inner = getattr(self, f"{MASTER}{name}"), core[f"{name[0]}_{name[1:]}"]
        from_core = master_ports(self.core)[f"{MASTER}{name}"].flow == Out
        m.d.comb += outer.eq(inner) if from_core else inner.eq(outer)

    def _request(self, m: Module, core: dict[str, Value], channel: str) -> None:
        """The channel of addresses: a length less one, and what is the same for all bursts."""

        def port(name: str) -> Value:
            found: Value = getattr(self, f"{MASTER}{channel}{name}")
            return found

        m.d.comb += [
            port("addr").eq(core[f"{channel}_address"]),
            port("len").eq(core[f"{channel}_beats"] - 1),
            port("size").eq(self.core.log_port),
            port("burst").eq(INCR),
            port("cache").eq(NORMAL),
            port("valid").eq(core[f"{channel}_valid"]),
            core[f"{channel}_ready"].eq(port("ready")),
        ]


class AxiTop(wiring.Component):
    """`AxiCore` around the module TOP, with a clock `aclk` and a reset `aresetn`, low to reset."""

    def __init__(self, config: VTAConfig) -> None:
        self.inner = AxiCore(config, apart=True)
        self.names = [*lite_ports(SLAVE), *master_ports(self.inner.core)]
        ports = {**lite_ports(SLAVE), **master_ports(self.inner.core)}
        super().__init__({"aclk": In(1), "aresetn": In(1), **ports})

    def elaborate(self, platform: object) -> Module:
        """Joins every port, and makes the clock domain of the two inputs."""
        m = Module()
        m.domains.sync = domain = ClockDomain()
        m.submodules.axi = self.inner
        m.d.comb += [domain.clk.eq(self.aclk), domain.rst.eq(~self.aresetn)]
        for name, member in self.signature.members.items():
            if name in self.names:
                outer, inner = getattr(self, name), getattr(self.inner, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        return m
