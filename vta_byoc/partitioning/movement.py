"""Data movement on packed tensors.  It goes to VTA only between operators that are there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of
from vta_byoc.partitioning.entry import (
    MatchBindings,
    Parsed,
    PatternEntry,
    Plan,
    PlanGroup,
    Read,
    Shaped,
)
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.strategies.movement import regions as moves
from vta_byoc.strategies.movement.gather import ZERO, gathered_by
from vta_byoc.workload.layout import NCHW, canonical
from vta_byoc.workload.workloads import ConcatWorkload, Shape

CHANNELS, ROWS, COLUMNS = 1, 2, 3
PERMUTE, RESHAPE, REPEAT = "relax.permute_dims", "relax.reshape", "relax.repeat"
PAD = "relax.nn.pad"
MOST_ELEMENTS = 1 << 22
"""Of a tensor whose elements are followed one by one."""
AXES = {2: (0, CHANNELS), 3: (0, CHANNELS, COLUMNS), 4: (0, CHANNELS, ROWS, COLUMNS)}
"""The axes of a tensor by how many it has, among those of (N, C, H, W)."""
SHUFFLE = (0, 2, 1, 3, 4)
"""Axes of (N, groups, channels of one, H, W) that a channel shuffle swaps."""


# ---------------------------------------------------------------- concat
def match_concat(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """A concat of int8 tensors that the model computes."""
    parts = parts_of(anchor.value)
    if not parts or any(dtype_of(p) != "int8" or is_constant(p) for p in parts):
        return None
    return [anchor]


def parts_of(call: relax.Call) -> list[relax.Expr]:
    """The tensors that a concat joins, where they are written out."""
    return list(call.args[0].fields) if isinstance(call.args[0], Tuple) else []


def read_concat(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Along the channels: in place where every part but the last fills whole blocks."""
    call = bindings[0].value
    parts = parts_of(call)
    shapes = [_nchw(part) for part in parts]
    axis = int(call.attrs.axis) % len(static_shape(call))
    if axis != CHANNELS:
        raise VTAError(
            Refusal(
                "concat along axis",
                f"{axis} of {static_shape(call)}",
                "the channels (axis 1) are joined",
                "transpose the model's axes",
            )
        )
    channels = tuple(shape[1] for shape in shapes)
    if any(c % config.block for c in channels[:-1]):
        return Parsed(moves.concat(shapes, config), tuple(parts), {})
    n, _, height, width = shapes[0]
    return Parsed(ConcatWorkload(n, channels, height, width), tuple(parts), {})


def plan_concat(parsed: Parsed, config: VTAConfig) -> Plan:
    """Stored in place, or lanes moved by the GEMM core."""
    if isinstance(parsed.work, ConcatWorkload):
        return simple_plan("concat", parsed.work, {}, config, "joined in place")
    channels = " + ".join(str(shape[1]) for shape in parsed.work.in_shapes)
    how = f"{channels} channels joined by copy, no multiples of BLOCK {config.block}"
    return simple_plan("move", parsed.work, {}, config, how)


# ---------------------------------------------------------------- one tensor
def match_one(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """An operator that moves one int8 tensor."""
    data = anchor.value.args[0]
    return [anchor] if dtype_of(data) == "int8" and not is_constant(data) else None


def match_repeat(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """Repeated rows, columns, or one after the other: nearest upsampling."""
    if match_one(graph, anchor) is None:
        return None
    before = graph.value(anchor.value.args[0])
    if before is not None and op_name(before) == REPEAT:
        return None  # the second of two belongs to the first
    user = graph.only_user(anchor.var)
    return [anchor, user] if user is not None and op_name(user.value) == REPEAT else [anchor]


def match_shuffle(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """(N, C, H, W) seen as groups, two axes swapped, and seen as before."""
    if op_name(anchor.value) != PERMUTE:
        return None
    before = graph.defined.get(anchor.value.args[0])
    after = graph.only_user(anchor.var)
    if before is None or after is None or graph.only_user(before.var) is None:
        return None
    reshapes = all(op_name(b.value) == RESHAPE for b in (before, after))
    if not reshapes or dtype_of(before.value.args[0]) != "int8":
        return None
    same = static_shape(before.value.args[0]) == static_shape(after.var)
    return [before, anchor, after] if same and len(static_shape(after.var)) == 4 else None


def read_slice(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Channels, rows and columns from one number to another, in steps."""
    call = bindings[0].value
    shape = _nchw(call.args[0])
    axes = AXES[len(static_shape(call.args[0]))]
    begin, end, step = [0, 0, 0, 0], list(shape), [1, 1, 1, 1]
    for given, first, last, by in slice_ranges(call):
        axis = axes[given % len(axes)]
        first, last, by = slice(first, last, by).indices(shape[axis])
        begin[axis], end[axis], step[axis] = first, last, by
    if (begin[0], end[0], step[0]) != (0, shape[0], 1) or min(step) < 1:
        raise VTAError(
            Refusal(
                "slice of",
                f"{shape} from {begin} to {end} in steps {step}",
                "all images, forward, are taken",
                "slice the channels, rows and columns",
            )
        )
    work = moves.strided_slice(shape, _three(begin), _three(end), _three(step), config)
    return _moved(work, call.args[0], call)


def slice_ranges(call: relax.Call) -> list[tuple[int, int, int, int]]:
    """Of a slice: each axis, from where to where and by which step."""
    arguments = [_integers(arg) for arg in _slice_arguments(call)]
    return [(a, b, e, s) for a, b, e, s in zip(*arguments, strict=True)]


def _slice_arguments(call: relax.Call) -> list[relax.Expr]:
    """Axes, begin, end and strides (1 where they are not given)."""
    axes, begin, end, *strides = call.args[1:]
    return [axes, begin, end, strides[0] if strides else Tuple([relax.prim_value(1)] * len(axes))]


def _integers(values: relax.Expr) -> list[int]:
    return [int(getattr(v, "value", v)) for v in values.fields]


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    return values[1], values[2], values[3]


def read_pad(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Zeros around images, channels, rows and columns."""
    call = bindings[0].value
    shape, widths = _nchw4(call.args[0]), zeros_around(call)
    top, bottom, left, right = widths[4:]
    if any(widths[:4]):
        check_size(math.prod(static_shape(call)))
        numbers = padded(call, np.arange(math.prod(shape)).reshape(shape))
        return _moved(gathered_by([shape], numbers, config), call.args[0], call)
    return _moved(moves.pad(shape, (top, left, bottom, right), config), call.args[0], call)


def padded(call: relax.Call, numbers: np.ndarray) -> np.ndarray:
    """The numbers of elements with ZERO around them."""
    widths = zeros_around(call)
    return np.pad(numbers, list(zip(widths[::2], widths[1::2], strict=True)), constant_values=ZERO)


def check_size(size: int) -> None:
    """Whether a copy of so many elements can be followed one by one.

    Raises:
        VTAError: it is larger.
    """
    if size > MOST_ELEMENTS:
        raise VTAError(
            Refusal(
                "a copy moves",
                f"{size} elements",
                f"{MOST_ELEMENTS} are followed one by one",
                "move them in parts",
            )
        )


def zeros_around(call: relax.Call) -> list[int]:
    """How many zeros a padding puts before and behind each axis.

    Raises:
        VTAError: it pads with something else, or cuts.
    """
    widths = [int(width) for width in call.attrs.pad_width]
    zeros = str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0
    if not zeros or min(widths) < 0:
        raise VTAError(
            Refusal(
                "pad by",
                f"{widths} of {static_shape(call.args[0])}, mode {call.attrs.pad_mode}",
                "zeros around a tensor are taken",
                "use those",
            )
        )
    return widths


def read_repeat(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Each row, each column, or each pixel several times."""
    source = bindings[0].value.args[0]
    factors = {ROWS: 1, COLUMNS: 1}
    for binding in bindings:
        axis = binding.value.attrs.axis
        if axis is None or int(axis) % 4 not in factors:
            raise VTAError(
                Refusal(
                    "repeat along axis",
                    f"{axis}",
                    "rows and columns (axes 2 and 3) are repeated",
                    "use nearest upsampling",
                )
            )
        factors[int(axis) % 4] *= int(binding.value.attrs.repeats)
    work = moves.upsample(_nchw4(source), (factors[ROWS], factors[COLUMNS]), config)
    return _moved(work, source, bindings[-1].value)


def read_shuffle(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Channels of all groups in turn."""
    before, after = bindings[0].value, bindings[-1].value
    source = before.args[0]
    order = shuffle_order(bindings)
    return _moved(moves.channels_of(_nchw4(source), order, config), source, after)


def shuffle_order(bindings: Sequence[Binding]) -> list[int]:
    """Of a channel shuffle: the channel of the operand that each channel of the result is."""
    before, permute, _ = (b.value for b in bindings)
    seen = static_shape(before)
    shape = _nchw4(before.args[0])
    n, channels, height, width = shape
    axes = tuple(int(a) for a in permute.attrs.axes or ())
    if len(seen) != 5 or axes != SHUFFLE or (seen[0], *seen[3:]) != (n, height, width):
        raise VTAError(
            Refusal(
                f"{shape} seen as",
                f"{seen} with the axes {axes}",
                f"(N, groups, channels, H, W) with the axes {SHUFFLE} is a channel shuffle",
                "write it so",
            )
        )
    groups = seen[1]
    each = channels // groups
    return [(i % groups) * each + i // groups for i in range(channels)]


def _moved(work: Shaped, source: relax.Expr, result: relax.Expr) -> Parsed:
    if tuple(work.out_shape) != _nchw(result):
        raise VTAError(
            Refusal(
                "the result has the shape",
                f"{static_shape(result)}",
                f"what moves there has {tuple(work.out_shape)}",
                "write it with plain ranges",
            )
        )
    return Parsed(work, (source,), {})


def _nchw(expr: relax.Expr) -> Shape:
    shape = canonical(static_shape(expr), NCHW)
    if shape is None:
        raise VTAError(
            Refusal(
                "a tensor has the shape",
                f"{static_shape(expr)}",
                "2 to 4 dimensions are taken",
                "reshape it",
            )
        )
    return shape


def _nchw4(expr: relax.Expr) -> Shape:
    shape = static_shape(expr)
    if len(shape) != 4:
        raise VTAError(
            Refusal("a tensor has the shape", f"{shape}", "(N, C, H, W) is taken", "reshape it")
        )
    n, c, h, w = shape
    return n, c, h, w


def plan_move(parsed: Parsed, config: VTAConfig) -> Plan:
    """Lanes of the result copied from those of the operand."""
    return simple_plan("move", parsed.work, {}, config, "copied by the GEMM core")


def _entry(
    name: str, anchor: str, match: MatchBindings, read: Read, plan: PlanGroup = plan_move
) -> PatternEntry:
    return PatternEntry(name, (anchor,), match, read, plan, moves=True)


ENTRIES = (
    _entry("vta.concat", "relax.concat", match_concat, read_concat, plan_concat),
    _entry("vta.slice", "relax.strided_slice", match_one, read_slice),
    _entry("vta.pad", PAD, match_one, read_pad),
    _entry("vta.upsample", REPEAT, match_repeat, read_repeat),
    _entry("vta.channel_shuffle", PERMUTE, match_shuffle, read_shuffle),
)
