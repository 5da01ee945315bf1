"""The parameters of the timing model, and the profiles that set several of them at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from vta_byoc.hw.config_values import want
from vta_byoc.hw.errors import VTAError

PROFILES: Mapping[str, Mapping[str, int]] = {
    "default": {},
    "chisel": {
        "fetch_burst": 8,
        "fetch_start": 13,
        "load_start": 6,
        "queue_depth": 512,
        "compute_start": 7,
    },
    "core": {"fetch_start": 3, "load_start": 3, "compute_start": 5},
}
"""The rules of time (docs/timing.md), and the parameters that go with them where none are given."""
CORE_BURST = 64
"""Beats that the core of `hw/rtl/` asks for at once: between two bursts others may use the port."""
CORE_STORE = 6
"""Cycles of a STORE on the core of `hw/rtl/` beside rows and the memory's acknowledgement."""
ALU_RATES = {"chisel": (1, 2), "hls": (2, 2)}
"""Cycles a vector on an immediate and on a tensor, by the core they belong to."""


@dataclass(frozen=True)
class Timing:
    """Parameters of the timing model (docs/timing.md), in cycles unless a name says otherwise.

    ``profile``, one of PROFILES, names the rules that they are parameters of: "default";
    "chisel", where padding is hidden behind data and STORE has a channel of its own, on which it
    waits ``write_latency`` for each burst; or "core", the core of ``hw/rtl/``.  :meth:`of` has the
    parameters of a profile.
    ``fetch_start`` and ``load_start`` come on top of ``dma_latency``.  ``port_bytes`` a cycle;
    ``fetch_burst`` and ``queue_depth`` are instructions; ``alu_*_cycles`` are cycles a vector.
    ``host_copy_bytes``: what the host's processor rearranges in a cycle of the machine; the
    simulators do not use it, the compiler weighs host copies by it.
    """

    profile: str = "default"
    clock_mhz: int = 100
    port_bytes: int = 8
    dma_latency: int = 32
    write_latency: int = 0
    load_start: int = 0
    fetch_start: int = 0
    fetch_burst: int = 16
    queue_depth: int = 32
    compute_start: int = 10
    alu_imm_cycles: int = 1
    alu_tensor_cycles: int = 2
    token_latency: int = 1
    host_copy_bytes: int = 4

    def __post_init__(self) -> None:
        latencies = ("dma_latency", "write_latency", "token_latency")
        may_be_0 = (*latencies, "compute_start", "load_start", "fetch_start")
        if not isinstance(self.profile, str) or self.profile not in PROFILES:
            raise VTAError(
                f"configuration key TIMING.profile is {self.profile!r}; profiles are "
                f"{', '.join(PROFILES)}; choose one"
            )
        for name in (item.name for item in dataclasses.fields(self) if item.name != "profile"):
            high = 4096 if name == "port_bytes" else 1_000_000
            want(f"TIMING.{name}", getattr(self, name), int(name not in may_be_0), high)

    @classmethod
    def of(cls, profile: str = "default", **values: int) -> Timing:
        """The parameters of ``profile``, but for ``values``."""
        given = PROFILES.get(profile, {}) if isinstance(profile, str) else {}
        return cls(profile, **{**given, **values})

    @property
    def hides_padding(self) -> bool:
        """Whether LOAD writes padding while data are waited for and move."""
        return self.profile == "chisel"

    @property
    def splits_channels(self) -> bool:
        """Whether STORE writes on a channel of its own."""
        return self.profile in ("chisel", "core")

    @property
    def writes_in_bursts(self) -> bool:
        """Whether STORE waits for each burst that it writes."""
        return self.profile == "chisel"

    @property
    def store_latency(self) -> int:
        """Cycles of a STORE beside those in which its rows move, where it does not wait in them."""
        return CORE_STORE + self.write_latency if self.profile == "core" else self.dma_latency

    @property
    def read_latency(self) -> int:
        """Cycles from the start of a LOAD to its first datum."""
        return self.dma_latency + self.load_start

    @property
    def fetch_latency(self) -> int:
        """Cycles from the start of a burst of fetch to its first instruction."""
        return self.dma_latency + self.fetch_start

    def with_alu(self, core: str) -> Timing:
        """The same machine with the ALU of ``core``, one of ALU_RATES."""
        if core not in ALU_RATES:
            raise VTAError(f"unknown ALU {core!r}; known: {', '.join(ALU_RATES)}; choose one")
        imm, tensor = ALU_RATES[core]
        return dataclasses.replace(self, alu_imm_cycles=imm, alu_tensor_cycles=tensor)
