"""What the core is generated from: sizes that follow from a configuration, and its version."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import MemType
from vta_byoc.hw.timing_parameters import CORE_BURST

VERSION = 2
"""The version that the core reports; it counts changes of registers and ports."""
TOP = "vta_core"
"""The name of the Verilog module."""
AXI_TOP = "vta_axi"
"""The name of the Verilog module around it, which has the buses of a board."""
ADDRESS_BITS = 32
"""Bits of a byte address in DRAM: the published registers hold 32."""
BURST_BEATS = CORE_BURST
"""Most beats of one burst."""
PAGE_BYTES = 4096
"""AXI allows no burst to cross a multiple of it."""
BEATS_BITS = BURST_BEATS.bit_length()
"""Bits of the number of beats of a burst."""


@dataclass(frozen=True)
class CoreParameters:
    """The sizes of the core of one machine.

    Attributes:
        config: the machine.
        window: beats that one unit asks for ahead of what has arrived.
        pending: bursts that the read channel tracks.
    """

    config: VTAConfig
    window: int
    pending: int = 64

    @classmethod
    def of(cls, config: VTAConfig) -> CoreParameters:
        """The core of a machine.

        Raises:
            VTAError: the core cannot be built with that memory port or those rates.
        """
        timing = config.timing
        port = timing.port_bytes
        if port not in (4, 8, 16, 32, 64):
            raise VTAError(
                f"TIMING.port_bytes {port}; the core's memory port is 4, 8, 16, 32 or 64 bytes "
                "wide; choose one of them"
            )
        if timing.fetch_burst * 16 > PAGE_BYTES or timing.fetch_burst & (timing.fetch_burst - 1):
            raise VTAError(
                f"TIMING.fetch_burst {timing.fetch_burst}; the core fetches a power of two of "
                f"instructions, at most {PAGE_BYTES // 16}, at once; choose one"
            )
        if timing.alu_tensor_cycles != 2 or timing.alu_imm_cycles > 2:
            raise VTAError(
                f"TIMING.alu_imm_cycles {timing.alu_imm_cycles} and alu_tensor_cycles "
                f"{timing.alu_tensor_cycles}; the core's ALU takes 1 or 2 cycles on an immediate "
                "and 2 on a tensor; set these"
            )
        return cls(config, max(BURST_BEATS, 2 * timing.dma_latency))

    @property
    def port_bytes(self) -> int:
        """Bytes that the memory port moves in a cycle."""
        return self.config.timing.port_bytes

    @property
    def port_bits(self) -> int:
        """Bits that the memory port moves in a cycle."""
        return 8 * self.port_bytes

    @property
    def log_port(self) -> int:
        """log2 of the bytes of the memory port."""
        return self.port_bytes.bit_length() - 1

    @property
    def lanes(self) -> int:
        """Lanes of one accumulator vector: BATCH × BLOCK."""
        return self.config.batch * self.config.block

    @property
    def token_bits(self) -> int:
        """Bits of a token counter, which counts to `max_tokens`."""
        return self.config.capabilities.max_tokens.bit_length()

    def log_bytes(self, mem: MemType) -> int:
        """log2 of the bytes of one element of a memory type in DRAM."""
        return dram_elem_bytes(self.config, mem).bit_length() - 1

    @property
    def capability_word(self) -> int:
        """The capability register: a bit for each yes-or-no capability, then the shift limit."""
        caps = self.config.capabilities
        flags = (caps.mul, caps.acc_8bit, caps.imm_reads_src, caps.shift_modulo, caps.out_sram)
        return sum(int(flag) << bit for bit, flag in enumerate(flags)) | caps.max_shift << 8

    @property
    def geometry_word(self) -> int:
        """The geometry register, 4 bits each: log2 of BATCH, BLOCK and port bytes; the version."""
        config = self.config
        logs = (config.log_batch, config.log_block, self.log_port, VERSION)
        return sum(value << 4 * place for place, value in enumerate(logs))

    @property
    def depth_word(self) -> int:
        """The depth register, 8 bits each: log2 of the depth of UOP, INP, WGT and ACC."""
        depths = self.config.depths
        names = ("uop", "inp", "wgt", "acc")
        return sum((depths[n].bit_length() - 1) << 8 * place for place, n in enumerate(names))
