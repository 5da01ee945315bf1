"""docs/cost-model.md: the terms add up to what the code returns, the numbers are those of the code.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from conv_cases import chosen_tiling
from doc_pages import DOCS, blocks

from vta_byoc.base.rewrites import without
from vta_byoc.cost.search import Choice
from vta_byoc.cost.usage import ResourceUsage, Staged, Time
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import UOP_BYTES
from vta_byoc.strategies.conv.tile_space import conv_space
from vta_byoc.workload.workloads import Conv2dWorkload, Epilogue, Step

PAGE = DOCS / "cost-model.md"
MODULES = {
    "demand": "vta_byoc.cost.usage",
    "conv_tiles": "vta_byoc.strategies.conv.tile_space",
    "fused_usage": "vta_byoc.strategies.fused.usage",
    "pool_taps": "vta_byoc.strategies.pooling.tile_space",
    "move": "vta_byoc.strategies.movement.move",
}
EPILOGUE = Epilogue((Step("add", "channel"), Step("shr", 8), Step("max", -128), Step("min", 127)))
LAYERS = [(64, 56), (128, 28), (256, 14), (512, 7)]
"""Channels and pixels a side of the 3x3 convolutions of ResNet-18."""


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """As on the page: all taps at every position, and the bias a step of the ALU."""
    with without(["bias_gemm", "skip_padding"]):
        yield


def layer(channels: int, size: int) -> Conv2dWorkload:
    pads = (1, 1, 1, 1)
    return Conv2dWorkload(
        1, channels, channels, size, size, (3, 3), padding=pads, epilogue=EPILOGUE
    )


def usage_of(work: Conv2dWorkload, config: VTAConfig) -> tuple[Choice, ResourceUsage]:
    grouping, choice = chosen_tiling(work, config)
    tile = {axis: np.array([size]) for axis, size in choice.tile.items()}
    return choice, conv_space(work, grouping, config).demand(tile, choice.variant)


class ByHand:
    """The terms of the page's limit `compute`: from the shape what follows from it, the rest from
    the counts of bytes and instructions."""

    def __init__(self, work: Conv2dWorkload, config: VTAConfig):
        self.work, self.config, self.time = work, config, config.timing
        self.choice, self.usage = usage_of(work, config)
        self.inp, self.wgt, _, self.bias = self.usage.staged
        self.slots = dict(zip(("inp", "wgt", "acc"), self.choice.slots, strict=True))
        tile = self.choice.tile
        self.tiles = self.parts(work.out_channels // config.block, tile["co"])
        self.tiles *= self.parts(work.height, tile["oh"]) * self.parts(work.width, tile["ow"])
        self.steps = self.tiles * self.parts(work.in_channels // config.block, tile["ci"])
        self.steps *= self.parts(3, tile["kh"]) * self.parts(3, tile["kw"])

    @staticmethod
    def parts(total: int, size: int) -> int:
        return -(-total // size)

    @property
    def vectors(self) -> int:
        work, block = self.work, self.config.block
        return work.height * work.width * work.out_channels // block

    def fill(self, item: Staged, slots: int) -> tuple[float, int]:
        """Cycles of all loads of a buffer, and how many: where the slot holds the tile is none."""
        row = int(np.asarray(item.period * item.turns).item())
        fills = int(np.asarray(item.fills).item())
        stays = slots % int(np.asarray(item.period).item()) == 0
        loads = fills // row * min(slots, row) if stays else fills
        counts = (np.asarray(n).item() for n in (item.nbytes, item.dmas, item.zeros))
        nbytes, dmas, zeros = (n * loads / fills for n in counts)
        cycles = nbytes / self.time.port_bytes + dmas * self.time.read_latency + zeros
        return cycles, loads

    def terms(self) -> dict[str, float]:
        time, usage = self.time, self.usage
        products = 9 * (self.work.in_channels // self.config.block)
        inp, inp_loads = self.fill(self.inp, self.slots["inp"])
        wgt, wgt_loads = self.fill(self.wgt, self.slots["wgt"])
        stores = float(np.asarray(usage.stores).item())
        store = self.vectors * self.config.out_elem_bytes / time.port_bytes
        store += stores * time.dma_latency
        alu = self.vectors * (time.alu_tensor_cycles + 3 * time.alu_imm_cycles)
        alu_starts = 4 * self.tiles * time.compute_start
        bias = self.fill(self.bias, self.slots["acc"])[0]
        return {
            "GEMM": self.vectors * products,
            "reset": self.vectors,
            "GEMM starts": (self.steps + self.tiles) * time.compute_start,
            "micro-ops": self.micro_ops(),
            "ALU": alu,
            "ALU starts": alu_starts,
            "bias": bias,
            "exposed": self.exposed(inp / inp_loads, store, alu + alu_starts + bias),
            "first INP": inp / inp_loads,
            "first WGT": wgt / wgt_loads,
            "last store": store / self.tiles,
        }

    def micro_ops(self) -> float:
        """One kernel of the GEMM for each combination of slots, others once for each ACC slot."""
        usage = self.usage
        met = 1
        seen: set[int] = set()
        slots = [self.slots[name] for name in ("inp", "wgt", "acc", "acc")]
        for item, count in zip(usage.staged, slots, strict=True):
            fills = int(np.asarray(item.fills).item())
            used = min(count, fills)
            if used > 1 and fills not in seen:
                met, seen = met * used, seen | {fills}
        met = min(met, self.steps)
        kernels, uops, step_kernels, step_uops = (
            float(np.asarray(n).item())
            for n in (usage.kernels, usage.uops, usage.step_kernels, usage.step_uops)
        )
        nbytes = UOP_BYTES * (uops + met * step_uops)
        latency = (kernels + met * step_kernels) * self.time.read_latency
        return nbytes / self.time.port_bytes + latency

    def exposed(self, inp_load: float, store: float, alu: float) -> float:
        """Of one slot of ACC all stores but the last; of INP's loads what the ALU does not hide."""
        waits = store * (1 - 1 / self.tiles) if self.slots["acc"] == 1 else 0.0
        if self.slots["inp"] == 1:
            fills = int(np.asarray(self.inp.fills).item())
            hidden = min(inp_load * min(fills, self.tiles), alu)
            waits += max(inp_load * (fills - 1) - hidden, 0)
        assert self.slots["wgt"] == 2
        return waits


@pytest.mark.parametrize("channels, size", LAYERS)
def test_terms_add_up_to_the_estimate(channels: int, size: int) -> None:
    config, work = VTAConfig.preset("pynq"), layer(channels, size)
    by_hand = ByHand(work, config)
    cycles = chosen_tiling(work, config)[1].cycles
    assert sum(by_hand.terms().values()) == pytest.approx(cycles, abs=1e-6)


@pytest.mark.parametrize("channels, size", LAYERS)
def test_the_largest_limit_is_the_estimate(channels: int, size: int) -> None:
    config, work = VTAConfig.preset("pynq"), layer(channels, size)
    choice, usage = usage_of(work, config)
    limits = Time(usage, config, choice.slots).limits()
    rows = re.findall(r"^\| `(\w+)` \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in rows if name in limits] == list(limits)
    assert max(float(np.max(cycles)) for cycles in limits.values()) == choice.cycles


def test_the_page_prints_what_it_shows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    session: dict[str, object] = {}
    printed = []
    for _, code in blocks(PAGE):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, str(PAGE), "exec"), session)
        printed.append(out.getvalue())
    assert printed == shown


def constants() -> Mapping[str, float]:
    """The rows of the page's table of rough counts."""
    text = PAGE.read_text(encoding="utf-8")
    found: dict[str, float] = {}
    for names, values in re.findall(
        r"^\| ((?:`\w+\.[A-Z_]+`(?:, )?)+) \| ([\d., ]+) \|", text, re.M
    ):
        keys = re.findall(r"`([\w.]+)`", names)
        found |= dict(zip(keys, map(float, values.split(", ")), strict=True))
    return found


def test_the_page_has_the_constants_of_the_code() -> None:
    found = constants()
    assert len(found) == 7
    for name, value in found.items():
        module, constant = name.split(".")
        assert getattr(importlib.import_module(MODULES[module]), constant) == value, name
