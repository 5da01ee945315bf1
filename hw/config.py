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
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.json_object import read_object, shown

WORD_BITS = 64
UOP_BITS = 32
SRAM_BASE_BITS = 16
LOOP_BITS = 14


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
        _want("CAPABILITIES.max_shift", self.max_shift, 1, 31)
        _want("CAPABILITIES.dst_distance", self.dst_distance, 1, 64)
        _want("CAPABILITIES.max_tokens", self.max_tokens, 1, 65535)


PROFILES: Mapping[str, Mapping[str, int]] = {
    "default": {},
    "chisel": {
        "fetch_burst": 8,
        "fetch_start": 13,
        "load_start": 6,
        "queue_depth": 512,
        "compute_start": 7,
    },
}
"""The rules of time (docs/timing.md), and the parameters that go with them where none are given."""
ALU_RATES = {"chisel": (1, 2), "hls": (2, 2)}
"""Cycles a vector on an immediate and on a tensor, by the core they belong to."""


@dataclass(frozen=True)
class Timing:
    """Parameters of the timing model (docs/timing.md), in cycles unless a name says otherwise.

    ``profile``, one of PROFILES, names the rules that they are parameters of: "default", or
    "chisel", where padding is hidden behind data and STORE has a channel of its own, on which it
    waits ``write_latency`` for each burst.  :meth:`of` has the parameters of a profile.
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
            _want(f"TIMING.{name}", getattr(self, name), int(name not in may_be_0), high)

    @classmethod
    def of(cls, profile: str, **values: int) -> Timing:
        """The parameters of ``profile``, but for ``values``."""
        return cls(profile, **{**PROFILES.get(profile, {}), **values})

    @property
    def hides_padding(self) -> bool:
        """Whether LOAD writes padding while data are waited for and move."""
        return self.profile == "chisel"

    @property
    def splits_channels(self) -> bool:
        """Whether STORE writes in bursts on a channel of its own."""
        return self.profile == "chisel"

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


MEMORIES = ("uop", "inp", "wgt", "acc")
"""The SRAMs that instructions index."""


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
        for name in MEMORIES:
            if getattr(self, name) is not None:
                _want(f"FIELD_WIDTHS.{name}", getattr(self, name), 1, SRAM_BASE_BITS)


def _want(name: str, value: Any, low: int, high: int) -> None:
    """Refuse ``value`` unless it is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise VTAError(
            f"configuration key {name} is {shown(value)}; it must be an integer from {low} to "
            f"{high}; correct it in the configuration file"
        )


def _want_text(name: str, value: Any) -> None:
    """Refuse ``value`` unless it is a string."""
    if not isinstance(value, str):
        raise VTAError(
            f"configuration key {name} is {shown(value)}; it must be a string; correct it in the "
            "configuration file"
        )


@dataclass(frozen=True)
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

    @property
    def inp_elem_bytes(self) -> int:
        return self.batch * self.block

    @property
    def wgt_elem_bytes(self) -> int:
        return self.block * self.block

    @property
    def acc_elem_bytes(self) -> int:
        return self.batch * self.block * 4

    @property
    def out_elem_bytes(self) -> int:
        return self.batch * self.block

    @property
    def uop_elem_bytes(self) -> int:
        return UOP_BITS // 8

    @property
    def inp_depth(self) -> int:
        """INP buffer capacity in elements; the other depths likewise."""
        return (1 << self.log_inp_buff_size) // self.inp_elem_bytes

    @property
    def wgt_depth(self) -> int:
        return (1 << self.log_wgt_buff_size) // self.wgt_elem_bytes

    @property
    def acc_depth(self) -> int:
        return (1 << self.log_acc_buff_size) // self.acc_elem_bytes

    @property
    def out_depth(self) -> int:
        """The OUT buffer has as many elements as ACC."""
        return self.acc_depth

    @property
    def uop_depth(self) -> int:
        return (1 << self.log_uop_buff_size) // self.uop_elem_bytes

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

    # ---------------------------------------------------------------- legality
    def __post_init__(self) -> None:
        _want_text("TARGET", self.target)
        _want_text("HW_VER", self.hw_ver)
        for name, width in (("inp", 3), ("wgt", 3), ("acc", 5)):
            _want(f"LOG_{name.upper()}_WIDTH", getattr(self, f"log_{name}_width"), width, width)
        _want("LOG_BATCH", self.log_batch, 0, 6)
        _want("LOG_BLOCK", self.log_block, 2, 7)
        for name in ("uop", "inp", "wgt", "acc"):
            _want(f"LOG_{name.upper()}_BUFF_SIZE", getattr(self, f"log_{name}_buff_size"), 4, 30)
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
        bits = self.index_bits
        acc, inp, wgt, uop = bits["acc"], bits["inp"], bits["wgt"], bits["uop"]
        words = (
            ("micro-op", acc + max(acc, inp) + wgt, UOP_BITS),
            ("GEMM word 0", 3 + 4 + 1 + uop + (uop + 1) + 2 * LOOP_BITS, WORD_BITS),
            ("GEMM word 1", 2 * (acc + inp + wgt), WORD_BITS),
            ("ALU word 1", 4 * acc + 3 + 1 + 16, WORD_BITS),
        )
        bad = [f"{what} needs {need} bits of {have}" for what, need, have in words if need > have]
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
        groups = {
            key.lower(): _group(kind, rest.pop(key, {}), where, key)
            for key, kind in GROUPS.items()
        }
        known = {f.name.upper(): f.name for f in dataclasses.fields(cls)}
        _refuse_unknown(rest, set(known) - set(GROUPS), where)
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
        files = resources.files(__package__).joinpath("presets").iterdir()
        return sorted(f.name[: -len(".json")] for f in files if f.name.endswith(".json"))

    @classmethod
    def preset(cls, name: str) -> VTAConfig:
        """A machine by name: one of :meth:`presets`."""
        if name not in cls.presets():
            raise VTAError(
                f"unknown preset {name!r}; known: {', '.join(cls.presets())}; "
                "choose one or give a JSON file"
            )
        folder = resources.files(__package__).joinpath("presets")
        text = folder.joinpath(f"{name}.json").read_text("utf-8")
        return cls.from_dict(json.loads(text), where=f"preset {name}")

    def to_dict(self) -> dict[str, Any]:
        """The inverse of :meth:`from_dict`."""
        data = {f.name.upper(): getattr(self, f.name) for f in dataclasses.fields(self)}
        return data | {key: dataclasses.asdict(data[key]) for key in GROUPS}


GROUPS = {"FIELD_WIDTHS": FieldWidths, "CAPABILITIES": Capabilities, "TIMING": Timing}
"""The keys whose values are objects."""


def _group(cls: Any, data: Any, where: str, name: str) -> Any:
    if not isinstance(data, Mapping):
        raise VTAError(
            f"{where}: {name} is {shown(data)}; it must be an object of KEY: value pairs"
        )
    _refuse_unknown(data, {f.name for f in dataclasses.fields(cls)}, f"{where}: {name}")
    for item in dataclasses.fields(cls):
        if item.type == "bool" and not isinstance(data.get(item.name, True), bool):
            raise VTAError(
                f"{where}: {name}.{item.name} is {shown(data[item.name])}; it must be true or "
                "false; correct it"
            )
    profile = data.get("profile")
    given = PROFILES.get(profile, {}) if cls is Timing and isinstance(profile, str) else {}
    return cls(**{**given, **data})


def _refuse_unknown(data: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise VTAError(
            f"{where}: unknown key {', '.join(shown(key)[1:-1] for key in unknown)}; known keys: "
            f"{', '.join(sorted(known))}; correct or remove it"
        )
