"""One sequence on a device: its memory keeps weights and caches; tokens go in, logits come out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.decoding.halves import Halves
from vta_byoc.decoding.memory import PREFILL, STEP, placed
from vta_byoc.decoding.programs import DecoderPrograms
from vta_byoc.hw.driver.addressing import arena_align, moved
from vta_byoc.hw.driver.execution import PAGE, Limits
from vta_byoc.hw.driver.protocol import Buffer, DeviceError, Flush
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import INSN_BYTES
from vta_byoc.hw.sim.devices import open_device


@dataclass
class Traffic:
    """Bytes that the host has copied between calls.

    Attributes:
        tokens: of the embedded tokens that programs read.
        logits: of results.
        addresses: of instructions whose window moved.
        caches: of keys and values, as far as any copy reaches them: none does.
    """

    tokens: int = 0
    logits: int = 0
    addresses: int = 0
    caches: int = 0

    def as_dict(self) -> dict[str, int]:
        """The bytes by name."""
        return dataclasses.asdict(self)


class Session:
    """A sequence that grows token by token.

    Attributes:
        traffic: what the host has copied since the weights were written.
        runs: how often each program ran, by name.
    """

    def __init__(self, programs: DecoderPrograms, device: str = "sim") -> None:
        self._programs = programs
        self._memory = placed(programs)
        self._halves = {PREFILL: programs.prefill, STEP: programs.step}
        self._driver = open_device(device, programs.config)
        self._ids: list[int] = []
        self._dtype = programs.windows.ids_dtype
        self.traffic = Traffic()
        self.runs = dict.fromkeys(self._halves, 0)
        config = programs.config
        self._arena = self._driver.allocate(self._memory.nbytes, max(arena_align(config), PAGE))
        self._driver.copy_to(self._arena, np.zeros(self._memory.nbytes, np.uint8))
        for first, octets in self._memory.contents.items():
            self._driver.copy_to(self._arena, octets, first)
        self._words: dict[str, np.ndarray] = {}
        self._streams: dict[str, Buffer] = {}
        for name in self._halves:
            self._words[name] = self._stream(name, 0)
            octets = self._words[name].reshape(-1).view(np.uint8)
            self._streams[name] = self._driver.allocate(len(octets), PAGE)
            self._driver.copy_to(self._streams[name], octets)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens so far."""
        return tuple(self._ids)

    @property
    def room(self) -> int:
        """How many more tokens the bucket takes."""
        return self._programs.windows.tokens - len(self._ids)

    def extend(self, ids: Sequence[int]) -> np.ndarray:
        """Append tokens; the logits behind the last of them, float32 (vocabulary,).

        A first call with more than a window runs the program of the whole bucket; all others run
        that of a window, once for each that the tokens reach.

        Raises:
            VTAError: no tokens, more than the bucket has room for, or numbers that no token has.
        """
        if not len(ids):
            raise VTAError("0 tokens are appended; 1 or more are; give the prompt a token")
        if len(ids) > self.room:
            raise VTAError(
                f"{len(ids)} tokens behind {len(self._ids)}; the bucket takes "
                f"{self._programs.windows.tokens}; shorten the prompt, or export the model with "
                "more tokens"
            )
        vocabulary = self._programs.vocabulary
        for place, each in enumerate(ids):
            if not 0 <= each < vocabulary:
                raise VTAError(
                    f"token {each} at place {place}; the model has {vocabulary}, from 0 to "
                    f"{vocabulary - 1}; give numbers of these"
                )
        window = self._programs.windows.window
        if not self._ids and len(ids) > window:
            self._ids += map(int, ids)
            return self._prefilled()
        left = list(map(int, ids))
        while True:
            part = left[: window - len(self._ids) % window]
            self._ids += part
            del left[: len(part)]
            logits = self._stepped(wanted=not left)
            if not left:
                return logits

    def reset(self) -> None:
        """Begin another sequence; what the caches hold of this one is never read again."""
        self._ids.clear()

    def close(self) -> None:
        """Give the device back."""
        self._driver.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- runs
    def _prefilled(self) -> np.ndarray:
        tokens = self._programs.windows.tokens
        self._run(PREFILL, 0, self._padded(self._ids, tokens))
        return self._logits(PREFILL, len(self._ids) - 1)

    def _stepped(self, *, wanted: bool) -> np.ndarray:
        window = self._programs.windows.window
        block, last = divmod(len(self._ids) - 1, window)
        self._run(STEP, block, self._padded(self._ids[block * window :], window))
        return self._logits(STEP, last) if wanted else np.zeros(0, np.float32)

    def _padded(self, ids: Sequence[int], count: int) -> np.ndarray:
        return np.array([[*ids, *[0] * (count - len(ids))]], self._dtype)

    def _run(self, name: str, block: int, ids: np.ndarray) -> None:
        half, windows, driver = self._halves[name], self._programs.windows, self._driver
        given = {windows.ids: ids}
        if name == STEP:
            rows = (part for part in half.feed.takes if part in windows.sliding)
            given |= {part: windows.sliding[part].at(block) for part in rows}
        for symbol, value in half.fed(given).items():
            octets = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            first = self._memory.offsets[name, symbol]
            driver.copy_to(self._arena, octets, first)
            self.traffic.tokens += octets.nbytes
            self._count_caches(first, octets.nbytes)
        self._slide(name, block)
        driver.flush(self._arena, Flush.FOR_DEVICE)
        driver.flush(self._streams[name], Flush.FOR_DEVICE)
        driver.start(self._streams[name], len(self._words[name]))
        driver.wait(Limits().timeout)
        driver.flush(self._arena, Flush.FOR_HOST)
        self.runs[name] += 1

    def _stream(self, name: str, block: int) -> np.ndarray:
        words = self._memory.stream(name, block)
        return moved(self._programs.config, words, self._arena.address)

    def _slide(self, name: str, block: int) -> None:
        """Let the instructions address the window, where they addressed another."""
        words = self._stream(name, block)
        for row in np.flatnonzero((words != self._words[name]).any(axis=1)).tolist():
            octets = words[row].view(np.uint8)
            self._driver.copy_to(self._streams[name], octets, row * INSN_BYTES)
            self.traffic.addresses += octets.nbytes
        self._words[name] = words

    def _logits(self, name: str, token: int) -> np.ndarray:
        """The logits of one token of the run before; only its bytes are read."""
        half: Halves = self._halves[name]
        results = {}
        for symbol in half.finish.takes:
            held = half.program.symbol(symbol)
            row = self._row(name, symbol, token)
            self._count_caches(self._memory.offsets[name, symbol], held.nbytes)
            results[symbol] = np.zeros(held.shape, held.dtype)
            results[symbol][..., token, :, :] = row
            self.traffic.logits += row.nbytes
        return half.finished(results)[0, token]

    def _count_caches(self, first: int, nbytes: int) -> None:
        """Count what a copy of bytes [first, first + nbytes) of the arena has of the caches."""
        for _, state in self._programs.caches:
            begin = self._memory.offsets[STEP, state]
            end = begin + self._programs.step.program.symbol(state).nbytes
            self.traffic.caches += max(0, min(end, first + nbytes) - max(begin, first))

    def _row(self, name: str, symbol: str, token: int) -> np.ndarray:
        """The vectors of a token of a packed result (..., tokens, 1, lanes)."""
        held = self._halves[name].program.symbol(symbol)
        try:
            arena = self._driver.map(self._arena)
        except DeviceError:  # another computer's memory
            first = self._memory.offsets[name, symbol]
            octets = self._driver.copy_from(self._arena, held.nbytes, first)
            return octets.view(held.dtype).reshape(held.shape)[..., token, :, :]
        return self._memory.view(arena, (name, symbol))[..., token, :, :].copy()
