"""The table of exact rewrites, and which of them are switched off.

An exact rewrite computes the same integers in fewer cycles.  All are on.  To find a fault, one
after the other is switched off: `BuildOptions.without_rewrites` does it for a compilation, whose
stages run inside of `without`.  Strategies and estimates ask `is_on`; what they keep between two
compilations has `switched_off` in its key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar

from vta_byoc.hw.errors import VTAError

REWRITES: dict[str, str] = {
    "bias_gemm": "A bias by channel is a product of the GEMM core with a constant vector, in one "
    "cycle a vector, or of idle lanes that the host fills, in none.",
    "border_bias": "What the zero point of the data adds beside padding is a vector by channel for "
    "each box of positions that see the same taps, added there, instead of a map that is loaded.",
    "skip_padding": "Taps that read only zero padding are not multiplied: a GEMM instruction for "
    "each rectangle of output positions that see the input.",
    "zero_blocks": "Blocks of weights that are all zero, between groups of channels that fill no "
    "whole blocks, are not multiplied: a GEMM instruction for each rectangle of the others.",
    "pool_first": "The maxima of windows come before bias, shift, clamps and operators of one "
    "operand that never fall where it rises, which then have fewer vectors to work on.",
    "pool_planes": "The accumulators that a pool in the tile joins are in planes, one for each "
    "position within a window: the first is joined in place.",
    "overlapping_pools": "Maxima of windows that overlap or are padded are computed in the tiles "
    "of the convolution before them, which computes what two tiles see twice.",
    "short_chains": "A function of one int8 value is computed by the fewest steps that give all "
    "256 results.",
    "folded_shuffles": "A channel shuffle behind a convolution is the order of its filters, where "
    "that costs less than groups and a copy.",
    "routed_channels": "Channels that are only moved between convolutions (slices, concatenations, "
    "shuffles) are stored where they are read: the convolutions before compute their filters in "
    "ranges, those behind have their weights in the order of what is stored.",
    "ordered_channels": "Channels between convolutions whose weights are zero in part, as those of "
    "groups are, lie in the order in which fewer blocks of weights are not all zero.",
    "implied_clamps": "Clamps at a producer's end are left out where the bounds of a sum that is "
    "fused into it imply them.",
    "layer_order": "Of layers that do not depend on each other the one with most layers behind it "
    "comes first, where the program is better so.",
    "joined_uops": "The micro-ops of a kernel are loaded together instead of when each instruction "
    "first needs its own.",
    "early_loads": "Weights and inputs that wait for no result are loaded before what does, while "
    "the layer before computes, in places of SRAM that are free by then.",
}
"""What each rewrite does, by name."""
_OFF: ContextVar[tuple[str, ...]] = ContextVar("vta_byoc.base.rewrites.off", default=())


def is_on(name: str) -> bool:
    """Whether the rewrite `name` of the table is to be done here."""
    assert name in REWRITES, name
    return name not in _OFF.get()


def switched_off() -> tuple[str, ...]:
    """The names of the rewrites that are not to be done here, sorted."""
    return _OFF.get()


@contextlib.contextmanager
def without(names: Collection[str]) -> Iterator[None]:
    """Switch the rewrites `names` off meanwhile, besides those that are off already.

    Raises:
        VTAError: there is no such rewrite.
    """
    check_rewrites(names)
    token = _OFF.set(tuple(sorted({*_OFF.get(), *names})))
    try:
        yield
    finally:
        _OFF.reset(token)


def check_rewrites(names: Collection[str], known: Mapping[str, str] = REWRITES) -> None:
    """Refuse a name that the table does not have.

    Raises:
        VTAError: the first of them.
    """
    for name in names:
        if name not in known:
            raise VTAError(
                f"there is no rewrite {name!r} to switch off; known: "
                f"{', '.join(known) or 'none'}; name one of them"
            )
