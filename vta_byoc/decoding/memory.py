"""The memory of a decoder: both programs, their caches, and what slides from window to window."""

from __future__ import annotations

import numpy as np

from vta_byoc.decoding.programs import DecoderPrograms, packed
from vta_byoc.hw.isa import Opcode
from vta_byoc.hw.program.together import Slide, Together, together

PREFILL, STEP = "prefill", "decode"


def placed(programs: DecoderPrograms) -> Together:
    """Both programs in one arena: equal constants once, each cache one tensor of both."""
    windows, config = programs.windows, programs.config
    prefill, step = programs.prefill.program, programs.step.program
    same = [((PREFILL, whole), (STEP, state)) for whole, state in programs.caches]
    slides = []
    for cache, (_, state) in zip(windows.caches, programs.caches, strict=True):
        # Tokens are columns of keys, and blocks of channels of turned values.
        rows = cache.shape[-2] if cache.axis == len(cache.shape) - 1 else windows.window
        slides.append(Slide((STEP, state), Opcode.STORE, rows * config.inp_elem_bytes))
    tables = {}
    for symbol, held in programs.sliding.items():
        parts = [packed(windows, held, block, config) for block in range(windows.blocks)]
        tables[STEP, symbol] = np.concatenate(parts).view(np.uint8)
        slides.append(Slide((STEP, symbol), Opcode.LOAD, parts[0].nbytes))
    return together({PREFILL: prefill, STEP: step}, same, tables, slides)
