"""A memory of AXI4 and a processor of AXI4-Lite for Amaranth's simulator, with drawn back-pressure.

Both look after the rules of the protocol: what is offered stays until it is taken, no output
depends on an input of the same cycle, bursts lie in a page, the last beat is the marked one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ORDERS = ("address", "data", "together", "either")
"""What a memory takes of a written burst first; together: in the same cycle; either: as drawn."""
PAGE = 4096
OKAY, SLVERR, DECERR = 0, 2, 3


@dataclass
class AxiMemory:
    """Serves the ports `m_axi_*` of a core.

    Attributes:
        core: the module.
        data: DRAM, uint8.
        rng: draws.
        order: one of ORDERS.
        ready_share: how often it takes, or has an answer, in a cycle.
        errors: addresses of beats that are answered with an error, and which.
    """

    core: Any
    data: np.ndarray
    rng: np.random.Generator
    order: str = "either"
    ready_share: float = 0.6
    errors: dict[int, int] = field(default_factory=dict)
    reads: int = 0
    writes: int = 0

    def __post_init__(self) -> None:
        self.width = len(self.core.m_axi_wdata) // 8
        self.asked: deque[list[int]] = deque()  # address, beats left
        self.addressed: deque[tuple[int, int]] = deque()
        self.beats: deque[tuple[int, int, int]] = deque()  # data, strobes, last
        self.whole = 0
        self.owed: deque[int] = deque()
        self.held: dict[str, tuple[int, ...]] = {}
        self.inputs: dict[str, int] = {}

    async def serve(self, ctx: Any) -> None:
        """Runs for ever."""
        while True:
            shown = self._shown(ctx)
            self._offer(shown)
            for name, value in self.inputs.items():
                ctx.set(getattr(self.core, f"m_axi_{name}"), value)
            assert self._shown(ctx) == shown, "an output depends on an input of the same cycle"
            self._check(shown)
            self._take(shown)
            await ctx.tick()

    def _shown(self, ctx: Any) -> dict[str, int]:
        names = ("awvalid", "awaddr", "awlen", "wvalid", "wdata", "wstrb", "wlast", "bready")
        names += ("arvalid", "araddr", "arlen", "rready", "awsize", "awburst", "arsize", "arburst")
        return {name: int(ctx.get(getattr(self.core, f"m_axi_{name}"))) for name in names}

    def _draw(self) -> int:
        return int(self.rng.random() < self.ready_share)

    def _offer(self, shown: dict[str, int]) -> None:
        """Inputs of this cycle; an answer that was not taken stays."""
        on = self.inputs
        takes_address, takes_data = self._draw(), self._draw()
        if self.order == "address":
            takes_data &= sum(beats for _, beats in self.addressed) > len(self.beats)
        elif self.order == "data":
            takes_address &= self.whole > len(self.addressed)
        elif self.order == "together" and not self.addressed:
            takes_address = takes_data = takes_address & shown["awvalid"] & shown["wvalid"]
        elif self.order == "together":
            takes_address = 0
        on |= {"awready": takes_address, "wready": takes_data, "arready": self._draw()}
        if not on.get("rvalid"):
            on["rvalid"] = int(bool(self.asked) and self._draw())
            if on["rvalid"]:
                address, left = self.asked[0]
                beat = self.data[address : address + self.width]
                on["rdata"] = int.from_bytes(beat.tobytes(), "little")
                on |= {"rlast": int(left == 1), "rresp": self.errors.get(address, OKAY)}
        if not on.get("bvalid"):
            on["bvalid"] = int(bool(self.owed) and self._draw())
            if on["bvalid"]:
                on["bresp"] = self.owed[0]

    def _check(self, shown: dict[str, int]) -> None:
        """The rules of the protocol."""
        channels = {"aw": ("addr", "len"), "w": ("data", "strb", "last"), "ar": ("addr", "len")}
        for channel, names in channels.items():
            payload = tuple(shown[f"{channel}{name}"] for name in names)
            valid, ready = shown[f"{channel}valid"], self.inputs[f"{channel}ready"]
            if channel in self.held:
                assert valid and payload == self.held.pop(channel), f"{channel} did not stay"
            if valid and not ready:
                self.held[channel] = payload
        for channel in ("aw", "ar"):
            if shown[f"{channel}valid"]:
                first, beats = shown[f"{channel}addr"], shown[f"{channel}len"] + 1
                last = first + beats * self.width - 1
                assert first % self.width == 0 and first // PAGE == last // PAGE
                assert shown[f"{channel}burst"] == 1 and 1 << shown[f"{channel}size"] == self.width

    def _take(self, shown: dict[str, int]) -> None:
        on = self.inputs
        if on["arready"] and shown["arvalid"]:
            self.asked.append([shown["araddr"], shown["arlen"] + 1])
        if on["rvalid"] and shown["rready"]:
            on["rvalid"] = 0
            self.reads += 1
            self.asked[0][0] += self.width
            self.asked[0][1] -= 1
            if not self.asked[0][1]:
                self.asked.popleft()
        if on["bvalid"] and shown["bready"]:
            on["bvalid"] = 0
            self.owed.popleft()
        if on["awready"] and shown["awvalid"]:
            self.addressed.append((shown["awaddr"], shown["awlen"] + 1))
        if on["wready"] and shown["wvalid"]:
            self.beats.append((shown["wdata"], shown["wstrb"], shown["wlast"]))
            self.whole += shown["wlast"]
        while self.addressed and self.whole:
            self._write(*self.addressed.popleft())

    def _write(self, address: int, beats: int) -> None:
        """One burst, of which address and all data have come."""
        answer = OKAY
        for number in range(beats):
            data, strobes, last = self.beats.popleft()
            assert last == (number == beats - 1), "the last beat is another one"
            at = address + number * self.width
            answer = max(answer, self.errors.get(at, OKAY))
            for place in range(self.width):
                if strobes >> place & 1:
                    self.data[at + place] = data >> 8 * place & 0xFF
            self.writes += 1
        self.whole -= 1
        self.owed.append(answer)


@dataclass
class AxiLiteMaster:
    """Writes and reads registers through the ports `<prefix>*`, address and data in any order."""

    core: Any
    rng: np.random.Generator
    prefix: str = "s_axi_"

    def _set(self, ctx: Any, **values: int) -> None:
        for name, value in values.items():
            ctx.set(getattr(self.core, f"{self.prefix}{name}"), value)

    def _get(self, ctx: Any, name: str) -> int:
        return int(ctx.get(getattr(self.core, f"{self.prefix}{name}")))

    async def _sent(self, ctx: Any, *channels: str) -> None:
        """Offer on the channels, each from a drawn cycle on, until all were taken."""
        left, offered = set(channels), set()
        while left:
            offered |= {name for name in left if self.rng.random() < 0.4}
            for name in channels:
                self._set(ctx, **{f"{name}valid": int(name in offered & left)})
            taken = {n for n in offered & left if self._get(ctx, f"{n}ready")}
            await ctx.tick()
            left -= taken
        self._set(ctx, **{f"{name}valid": 0 for name in channels})

    async def _answered(self, ctx: Any, channel: str, *names: str) -> list[int]:
        """Wait for an answer, take it late, and see that it stays until then."""
        while not self._get(ctx, f"{channel}valid"):
            await ctx.tick()
        found = [self._get(ctx, f"{channel}{name}") for name in names]
        while self.rng.random() < 0.5:
            await ctx.tick()
            assert self._get(ctx, f"{channel}valid")
            assert [self._get(ctx, f"{channel}{name}") for name in names] == found
        self._set(ctx, **{f"{channel}ready": 1})
        await ctx.tick()
        self._set(ctx, **{f"{channel}ready": 0})
        return found

    async def write(self, ctx: Any, address: int, value: int, strobes: int = 15) -> int:
        """Write a register; the answer."""
        self._set(ctx, awaddr=address, wdata=value, wstrb=strobes)
        await self._sent(ctx, "aw", "w")
        (answer,) = await self._answered(ctx, "b", "resp")
        return answer

    async def read(self, ctx: Any, address: int) -> int:
        """Read a register, which must be answered without an error."""
        self._set(ctx, araddr=address)
        await self._sent(ctx, "ar")
        value, answer = await self._answered(ctx, "r", "data", "resp")
        assert answer == OKAY
        return value
