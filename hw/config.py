"""The machine's configuration: one frozen dataclass, from which every size is derived.

The keys are those of ``vta_config.json`` plus three groups: ``FIELD_WIDTHS`` (where a
core fixes them), ``CAPABILITIES`` (what implementations disagree about) and ``TIMING``
(parameters of the timing model).  A machine that cannot exist or whose instructions cannot be
encoded is refused by name.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vta_byoc.hw.config_values import group, refuse_unknown, want, want_text
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.html_table import html_table
from vta_byoc.hw.isa import (
    ALU_CAPABILITIES,
    LOADABLE,
    MEMORY_TYPES,
    SRAM_BASE_BITS,
    SRAMS,
    UOP_BYTES,
    AluOp,
    MemType,
    overfull,
)
from vta_byoc.hw.json_object import read_object, shown
from vta_byoc.hw.plugins import load_installed
from vta_byoc.hw.preset_files import preset_names, preset_text
from vta_byoc.hw.registry import Registry
from vta_byoc.hw.timing_parameters import Timing


@dataclass(frozen=True)
class Capabilities:
    """What differs between implementations; code generation and the simulators obey it.

    ``imm_reads_src``: an ALU instruction on an immediate computes acc[src] op imm, not acc[dst] op
    imm.  ``shift_modulo``: amounts from a tensor count modulo 32 whatever their sign.
    ``out_sram``: STORE reads a memory that only results of GEMM and the ALU are written to.
    docs/machine.md lists all keys.
    """

    mul: bool = True
    acc_8bit: bool = True
    imm_reads_src: bool = False
    shift_modulo: bool = False
    out_sram: bool = False
    max_shift: int = 15
    dst_distance: int = 4
    max_tokens: int = 255

    def __post_init__(self) -> None:
        want("CAPABILITIES.max_shift", self.max_shift, 1, 31)
        want("CAPABILITIES.dst_distance", self.dst_distance, 1, 64)
        want("CAPABILITIES.max_tokens", self.max_tokens, 1, 65535)

    def has(self, capability: str) -> bool:
        """Whether the machine has a capability by its name; it always has the one without name."""
        return not capability or bool(getattr(self, capability))

    @property
    def alu_ops(self) -> list[AluOp]:
        """The operations that the machine's ALU does, in the order of their codes."""
        return [op for op in AluOp if self.has(ALU_CAPABILITIES.get(op, ""))]

    @property
    def loadable(self) -> list[MemType]:
        """The memory types that the machine's LOAD takes, in the order of the table."""
        return [mem for mem in LOADABLE if self.has(MEMORY_TYPES[mem].capability)]


@dataclass(frozen=True)
class FieldWidths:
    """Bits of the instruction fields that index each SRAM; None: log2 of the SRAM's depth.

    Some cores fix their fields whatever the depths are: a smaller buffer there leaves the bits of
    an instruction where they are.
    """

    uop: int | None = None
    inp: int | None = None
    wgt: int | None = None
    acc: int | None = None

    def __post_init__(self) -> None:
        for name in SRAMS:
            if getattr(self, name) is not None:
                want(f"FIELD_WIDTHS.{name}", getattr(self, name), 1, SRAM_BASE_BITS)


@dataclass(frozen=True, repr=False)
class VTAConfig:
    """One VTA machine.  Sizes are powers of two, given by their logarithms (bytes for buffers)."""

    target: str = "sim"
    hw_ver: str = "0.0.2"
    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff_size: int = 15
    log_inp_buff_size: int = 15
    log_wgt_buff_size: int = 18
    log_acc_buff_size: int = 17
    field_widths: FieldWidths = field(default_factory=FieldWidths)
    capabilities: Capabilities = field(default_factory=Capabilities)
    timing: Timing = field(default_factory=Timing)

    # ---------------------------------------------------------------- geometry
    @property
    def batch(self) -> int:
        """Rows of one INP, ACC or OUT element."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Channels of one element; BLOCK_IN equals BLOCK_OUT."""
        return 1 << self.log_block

    def element_shape(self, sram: str) -> tuple[int, ...]:
        """Shape in scalars of one element of the on-chip memory ``sram``."""
        return tuple(getattr(self, size) for size in SRAMS[sram].sizes)

    def elem_bytes(self, sram: str, dtype: str = "") -> int:
        """Bytes of one element of ``sram``, by default of the type that it has on chip."""
        scalar: int = np.dtype(dtype or SRAMS[sram].dtype).itemsize
        return math.prod(self.element_shape(sram)) * scalar

    @functools.cached_property
    def inp_elem_bytes(self) -> int:
        """Bytes of one element of INP."""
        return self.elem_bytes("inp")

    @functools.cached_property
    def wgt_elem_bytes(self) -> int:
        """Bytes of one element of WGT."""
        return self.elem_bytes("wgt")

    @functools.cached_property
    def acc_elem_bytes(self) -> int:
        """Bytes of one element of ACC."""
        return self.elem_bytes("acc")

    @functools.cached_property
    def out_elem_bytes(self) -> int:
        """Bytes that a STORE writes for one element of ACC."""
        return self.elem_bytes("acc", MEMORY_TYPES[MemType.OUT].dtype)

    @property
    def uop_elem_bytes(self) -> int:
        """Bytes of one micro-op."""
        return UOP_BYTES

    @property
    def inp_depth(self) -> int:
        """INP buffer capacity in elements."""
        return (1 << self.log_inp_buff_size) // self.inp_elem_bytes

    @property
    def wgt_depth(self) -> int:
        """WGT buffer capacity in elements."""
        return (1 << self.log_wgt_buff_size) // self.wgt_elem_bytes

    @property
    def acc_depth(self) -> int:
        """ACC buffer capacity in elements."""
        return (1 << self.log_acc_buff_size) // self.acc_elem_bytes

    @property
    def out_depth(self) -> int:
        """The OUT buffer has as many elements as ACC."""
        return self.acc_depth

    @property
    def uop_depth(self) -> int:
        """Micro-op buffer capacity in micro-ops."""
        return (1 << self.log_uop_buff_size) // self.uop_elem_bytes

    @property
    def depths(self) -> dict[str, int]:
        """Capacity in elements of each on-chip memory, by name."""
        return {name: getattr(self, f"{name}_depth") for name in SRAMS}

    @property
    def index_bits(self) -> dict[str, int]:
        """Width of the fields that index each SRAM: as given, or log2 of its depth."""
        return {
            name: getattr(self.field_widths, name) or self._least_bits(name)
            for name in ("inp", "wgt", "acc", "uop")
        }

    def _least_bits(self, name: str) -> int:
        """Bits that can index every element of SRAM ``name``."""
        depth: int = getattr(self, f"{name}_depth")
        return depth.bit_length() - 1

    @property
    def name(self) -> str:
        """Short name of the geometry, e.g. ``1x16``."""
        return f"{self.batch}x{self.block}"

    @functools.cached_property
    def key(self) -> str:
        """Identifier of what the instruction set sees: equal keys run the same programs."""
        logs = (
            self.log_batch,
            self.log_block,
            self.log_uop_buff_size,
            self.log_inp_buff_size,
            self.log_wgt_buff_size,
            self.log_acc_buff_size,
        )
        widths = [bits for name, bits in self.index_bits.items() if bits != self._least_bits(name)]
        fields = "_f{inp}.{wgt}.{acc}.{uop}".format(**self.index_bits).replace(".", "_")
        return "b{}_k{}_u{}_i{}_w{}_a{}".format(*logs) + (fields if widths else "")

    # ---------------------------------------------------------------- showing it
    def __repr__(self) -> str:
        return f"<VTAConfig {self.target} ({self.name}) {self.key}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                name.upper(),
                f"{depth:,}",
                f"{1 << getattr(self, f'log_{name}_buff_size'):,}" if name != "out" else "",
                str(self.index_bits.get(name, "")),
            )
            for name, depth in self.depths.items()
        ]
        return html_table(
            f"{self.target}: {self.name}, {self.timing.clock_mhz:g} MHz",
            ("memory", "elements", "bytes", "index bits"),
            rows,
        )

    # ---------------------------------------------------------------- legality
    def __post_init__(self) -> None:
        want_text("TARGET", self.target)
        want_text("HW_VER", self.hw_ver)
        for name, width in (("inp", 3), ("wgt", 3), ("acc", 5)):
            want(f"LOG_{name.upper()}_WIDTH", getattr(self, f"log_{name}_width"), width, width)
        want("LOG_BATCH", self.log_batch, 0, 6)
        want("LOG_BLOCK", self.log_block, 2, 7)
        for name in ("uop", "inp", "wgt", "acc"):
            want(f"LOG_{name.upper()}_BUFF_SIZE", getattr(self, f"log_{name}_buff_size"), 4, 30)
            self._check_depth(name)
        self._check_encodable()

    def _check_depth(self, name: str) -> None:
        elem = getattr(self, f"{name}_elem_bytes")
        log = getattr(self, f"log_{name}_buff_size")
        if (1 << log) < 2 * elem:
            raise VTAError(
                f"configuration {self.name}: LOG_{name.upper()}_BUFF_SIZE {log} is {1 << log} "
                f"bytes; an element is {elem} bytes and at least 2 must fit; raise it to "
                f"{(2 * elem - 1).bit_length()} or more"
            )
        depth = getattr(self, f"{name}_depth")
        if depth > 1 << SRAM_BASE_BITS:
            raise VTAError(
                f"configuration {self.name}: the {name.upper()} buffer has {depth} elements; "
                f"sram_base reaches {1 << SRAM_BASE_BITS}; lower LOG_{name.upper()}_BUFF_SIZE"
            )
        have, need = self.index_bits[name], self._least_bits(name)
        if have < need:
            raise VTAError(
                f"configuration {self.name}: FIELD_WIDTHS.{name} is {have} bits; the "
                f"{name.upper()} buffer has {depth} elements and needs {need}; raise it or lower "
                f"LOG_{name.upper()}_BUFF_SIZE to {log - need + have}"
            )

    def _check_encodable(self) -> None:
        bad = overfull(self.index_bits)
        if bad:
            fixed = self.field_widths != FieldWidths()
            raise VTAError(
                f"configuration {self.name} cannot be encoded: {', '.join(bad)}; index widths are "
                f"{'FIELD_WIDTHS or ' if fixed else ''}log2 of the buffer depths: lower "
                f"{'FIELD_WIDTHS or ' if fixed else ''}LOG_*_BUFF_SIZE"
            )

    # ---------------------------------------------------------------- files
    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "configuration") -> VTAConfig:
        """Build from ``vta_config.json`` keys; LOG_BLOCK_IN/OUT are accepted when equal."""
        rest = dict(data)
        pair = (rest.pop("LOG_BLOCK_IN", None), rest.pop("LOG_BLOCK_OUT", None))
        if pair != (None, None):
            log_block = rest.setdefault("LOG_BLOCK", pair[0])
            if any(p not in (None, log_block) for p in pair):
                raise VTAError(
                    f"{where}: LOG_BLOCK_IN {shown(pair[0])} and LOG_BLOCK_OUT {shown(pair[1])} "
                    "differ; this machine has square blocks; make them equal"
                )
        make: dict[str, Callable[..., Any]] = {**GROUPS, "TIMING": Timing.of}
        groups = {
            key.lower(): make[key](**group(kind, rest.pop(key, {}), where, key))
            for key, kind in GROUPS.items()
        }
        known = {f.name.upper(): f.name for f in dataclasses.fields(cls)}
        refuse_unknown(rest, set(known) - set(GROUPS), where)
        return cls(**{known[k]: v for k, v in rest.items()}, **groups)

    @classmethod
    def from_json(cls, path: str | Path) -> VTAConfig:
        """Read a configuration file (keys of ``vta_config.json``)."""
        instead = f"name a preset ({', '.join(cls.presets())}) or an existing JSON file"
        data = read_object(path, f"configuration file {path}", instead)
        return cls.from_dict(data, where=str(path))

    @classmethod
    def presets(cls) -> list[str]:
        """Names of the presets, sorted."""
        load_installed()
        return sorted(PRESETS)

    @classmethod
    def preset(cls, name: str) -> VTAConfig:
        """A machine by name: one of :meth:`presets`."""
        if name not in PRESETS and name not in cls.presets():
            raise VTAError(
                f"unknown preset {name!r}; known: {', '.join(cls.presets())}; "
                "choose one or give a JSON file"
            )
        return PRESETS[name]()

    def to_dict(self) -> dict[str, Any]:
        """The inverse of :meth:`from_dict`."""
        data = {f.name.upper(): getattr(self, f.name) for f in dataclasses.fields(self)}
        return data | {key: dataclasses.asdict(data[key]) for key in GROUPS}


GROUPS = {"FIELD_WIDTHS": FieldWidths, "CAPABILITIES": Capabilities, "TIMING": Timing}
"""The keys whose values are objects."""


def _read_preset(name: str) -> VTAConfig:
    return VTAConfig.from_dict(json.loads(preset_text(name)), where=f"preset {name}")


PRESETS: Registry[Callable[[], VTAConfig]] = Registry("preset")
"""Name -> what makes the machine."""
for _name in preset_names():
    PRESETS.add(_name, functools.partial(_read_preset, _name))
