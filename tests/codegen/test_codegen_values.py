"""The values that code generation computes with: forms, steps, elements, tiles and limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from room_values import by_identity, changeable
from tvm import tirx

from vta_byoc.codegen import CodegenError, View
from vta_byoc.codegen.accumulator import AccumulatorState, Change, Clobbered, elements, meet
from vta_byoc.codegen.alu import check_immediate, shift_parts
from vta_byoc.codegen.linear import Bound, Clip, Linear, VarTable, bounds_of, row_major
from vta_byoc.codegen.resident import Residency
from vta_byoc.codegen.sram import DEFAULT_SLOTS, SramMap, Tile
from vta_byoc.codegen.stream import QUEUES, Insn
from vta_byoc.codegen.uops import BEST, TUTORIALS, LoopCompression, LoopDim, UopBuffer
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import AluOp, MemType, Opcode
from vta_byoc.workload.memory import ACC, INP, WGT

CONFIG = VTAConfig()
LOAD, COMPUTE, STORE = QUEUES


def test_which_values_may_change() -> None:
    assert changeable("vta_byoc.codegen") == {"Insn", "TensorizableNest", "_Group", "_Item"}
    assert by_identity("vta_byoc.codegen") == {
        "Access",
        "Block",
        "Execution",
        "TensorizableNest",
        "Loop",
        "Clobbered",
    }


# ---------------------------------------------------------------- forms
def variable(name: str) -> tirx.Var:
    return tirx.Var(name, "int32")


def test_forms_add_and_scale_like_numbers() -> None:
    rng = np.random.default_rng(0)
    env = {0: 3, 1: -5, 2: 11}
    for _ in range(50):
        one, two = (
            Linear.of(int(c), dict(enumerate(map(int, terms))))
            for c, *terms in rng.integers(-9, 10, (2, 4))
        )
        factor = int(rng.integers(-4, 5))
        assert (one + two).at(env) == one.at(env) + two.at(env)
        assert one.scale(factor).at(env) == factor * one.at(env)
        assert all(c for _, c in (one + two).terms + one.scale(factor).terms), "no empty terms"
    form = Linear.of(7, {2: 5, 0: -1, 1: 0})
    assert form == Linear(7, ((0, -1), (2, 5)))
    assert [form.coef(v) for v in range(4)] == [-1, 0, 5, 0]
    assert form.at({}) == 7 and form.at({2: 2}) == 17, "variables that are not given count as 0"


def test_an_affine_index_is_read_as_it_stands() -> None:
    table = VarTable()
    i, j = variable("i"), variable("j")
    assert (table.bind(i, 1), table.bind(j, 4)) == (0, 1)
    assert table.linear(5) == table.linear(tirx.IntImm("int32", 5)) == Linear(5)
    assert table.linear(i * 3 - j + 2) == Linear(2, ((0, 3), (1, -1)))
    assert table.linear(4 * j) == table.linear(j * 4) == Linear(0, ((1, 4),))
    assert table.linear(tirx.Cast("int64", i)) == Linear(0, ((0, 1),))
    assert table.linear(tirx.floordiv(j * 4 + 3, 4)) == Linear(0, ((1, 1),)), "3 never carries"
    indices = [i, j, j * 2]
    forms = tuple(map(table.linear, indices))
    assert table.place(indices, [100, 10, 1], 7) == (forms, Linear(7, ((0, 100), (1, 12))))
    # apart neither index is affine, together they are
    fused = table.place([tirx.floordiv(j, 2), tirx.floormod(j, 2)], [2, 1], 5)
    assert fused == ((), Linear(5, ((1, 1),)))
    assert table.place([tirx.floordiv(j * 4, 4)], [3]) == ((table.linear(j),), Linear(0, ((1, 3),)))
    table.bind(k := variable("k"), 3)
    for index in (k * j, tirx.floordiv(j, 3)):
        with pytest.raises(CodegenError) as error:
            table.linear(index)
        assert str(error.value) == (
            f"index {index} is not affine in its loops; the DMA and the hardware loops follow "
            "constant strides only; split or reorder so that it becomes affine"
        )


def test_row_major() -> None:
    assert row_major((2, 3, 4, 5)) == [60, 20, 5, 1]
    assert row_major((7,)) == [1] and row_major(()) == []


@pytest.mark.parametrize("seed", range(20))
def test_clip_is_where_the_conditions_hold(seed: int) -> None:
    """Comparisons of one loop with a number and an outer variable, in both directions."""
    rng = np.random.default_rng(seed)
    table, loops = VarTable(), [variable(n) for n in "ij"]
    outer = variable("o")
    numbers = [(table.bind(v, e), e) for v, e in zip(loops, (5, 7), strict=True)]
    table.bind(outer, 4)
    cond, plain = None, []
    for _ in range(int(rng.integers(1, 4))):
        v, c, d, sign = (int(x) for x in rng.integers((0, 1, -3, 0), (2, 4, 9, 2)))
        one, two = loops[v] * (c if sign else -c) + outer, tirx.IntImm("int32", d)
        kind = [tirx.LT, tirx.LE, tirx.GT, tirx.GE][int(rng.integers(4))]
        test = [np.less, np.less_equal, np.greater, np.greater_equal][
            [tirx.LT, tirx.LE, tirx.GT, tirx.GE].index(kind)
        ]
        term = kind(one, two)
        cond = term if cond is None else tirx.And(cond, term)
        plain.append((v, c if sign else -c, d, test))
    clip = Clip(bounds_of(cond, table), numbers)
    for turn in range(4):
        inside = [
            at
            for at in itertools.product(range(5), range(7))
            if all(test(at[v] * c + turn, d) for v, c, d, test in plain)
        ]
        box = clip.domain({table[outer]: turn})
        covered = [] if box is None else list(itertools.product(*(range(*r) for r in box)))
        assert covered == inside


@pytest.mark.parametrize("seed", range(20))
def test_boxes_are_where_conditions_of_two_loops_hold(seed: int) -> None:
    """Rows and columns of a window as a convolution has them, each place in one box."""
    rng = np.random.default_rng(seed)
    table, sizes = VarTable(), (5, 6, 3, 2)
    loops = [variable(name) for name in "hwyx"]
    numbers = [(table.bind(v, e), e) for v, e in zip(loops, sizes, strict=True)]
    forms = []
    for out, tap in ((0, 2), (1, 3)):
        step, dilation, before, size = (int(x) for x in rng.integers((1, 1, 0, 1), (4, 4, 6, 9)))
        position = loops[out] * step + loops[tap] * dilation - before
        forms.append((out, tap, step, dilation, before, size, position))
    cond = tirx.all(*(c for *_, size, at in forms for c in (at >= 0, at < size)))
    boxes = Clip(bounds_of(cond, table), numbers, 2).domains({})
    covered = [at for box in boxes for at in itertools.product(*(range(*r) for r in box))]
    wanted = [
        at
        for at in itertools.product(*map(range, sizes))
        if all(0 <= at[o] * s + at[t] * d - b < n for o, t, s, d, b, n, _ in forms)
    ]
    assert sorted(covered) == wanted


def test_conditions_that_are_known() -> None:
    table = VarTable()
    i = variable("i")
    loop = [(table.bind(i, 5), 5)]
    assert bounds_of(tirx.IntImm("bool", 1), table) == []
    assert Clip([], loop).domain({}) == ((0, 5),)
    never = bounds_of(tirx.IntImm("bool", 0), table)
    assert never == [Bound(Linear(-1), "false")]
    assert Clip(never, loop).domain({}) is None
    with pytest.raises(CodegenError) as error:
        bounds_of(tirx.EQ(i, tirx.IntImm("int32", 2)), table)
    assert str(error.value) == (
        "condition i == 2 is not a conjunction of comparisons; padding and tails are boxes; use "
        "<, <=, >, >= joined by and"
    )


# ---------------------------------------------------------------- ALU
@pytest.mark.parametrize("limit", [1, 7, 31])
def test_shifts_in_parts(limit: int) -> None:
    for amount in range(-31, 32):
        parts = shift_parts(amount, limit)
        assert sum(parts) == amount and len(parts) == -(-abs(amount) // limit)
        assert all(0 < abs(p) <= limit for p in parts)


@pytest.mark.parametrize(
    ("op", "low", "high"),
    [(AluOp.SHR, -31, 31), *((op, -32768, 32767) for op in AluOp if op != AluOp.SHR)],
)
def test_limits_of_immediates(op: AluOp, low: int, high: int) -> None:
    check_immediate("b", op, low)
    check_immediate("b", op, high)
    for value in (low - 1, high + 1):
        with pytest.raises(CodegenError) as error:
            check_immediate("b", op, value)
        assert str(error.value) == (
            f"block b shifts by {value}; int32 shifts are -31 to 31; shift by less"
            if op == AluOp.SHR
            else f"block b: {op.name} by {value}; an immediate holds -32768 to 32767; fold the "
            "constant into the bias or load it as a tensor"
        )


# ---------------------------------------------------------------- elements of the accumulator
def test_elements_of_a_nest() -> None:
    """A dense set is a slice, any other one its numbers in order."""
    assert elements([], 0, 7) == slice(7, 8)
    assert elements([LoopDim(4, (1, 9, 0))], 0, 3) == slice(3, 7)
    assert elements([LoopDim(2, (3, 0, 0)), LoopDim(3, (1, 0, 0))], 0, 5) == slice(5, 11)
    assert elements([LoopDim(4, (1, 0, 0))], 1, 3) == slice(3, 4), "its operand stays"
    assert np.array_equal(elements([LoopDim(3, (1, 2, 0))], 1, 4), [4, 6, 8])
    assert np.array_equal(elements([LoopDim(3, (-2, 2, 0))], 0, 4), [0, 2, 4])


def test_sets_that_meet() -> None:
    even, odd = np.array([0, 2, 4]), np.array([1, 3])
    assert meet(slice(0, 3), slice(2, 5)) and not meet(slice(0, 2), slice(2, 5))
    assert meet(even, slice(4, 9)) and not meet(even, odd) and not meet(slice(5, 9), even)


def change(op: AluOp = AluOp.SHR, imm: int | None = 3, dst: int = 0) -> Change:
    return Change(op, imm, dst, dst, (LoopDim(4, (1, 1, 0)),))


ADD = change(AluOp.ADD, 5)
CONTINUED = {
    "the same": ([ADD, change()], [ADD, change()], []),
    "one more": ([ADD], [ADD, change()], [change()]),
    "a longer shift": ([ADD, change(imm=3)], [ADD, change(imm=5), ADD], [change(imm=2), ADD]),
    "from no shift on": ([change(imm=0)], [change(imm=5)], [change(imm=5)]),
    "a shorter shift": ([change(imm=3)], [change(imm=2)], None),
    "back to the left": ([change(imm=-1)], [change(imm=2)], None),
    "another operation last": ([change(AluOp.MAX, 3)], [change(AluOp.MAX, 5)], None),
    "shifts of other elements": ([change(imm=3)], [change(imm=5, dst=1)], None),
    "a shift by a tensor": ([change(imm=None)], [change(imm=5)], None),
    "then by a tensor": ([change(imm=3)], [change(imm=None)], None),
    "less": ([ADD, change()], [ADD], None),
    "another beginning": ([ADD, change()], [change(AluOp.ADD, 4), change()], None),
    "nothing that is known": ([], [ADD], None),
}


@pytest.mark.parametrize(("done", "wanted", "rest"), CONTINUED.values(), ids=CONTINUED)
def test_what_is_left_to_do(
    done: list[Change], wanted: list[Change], rest: list[Change] | None
) -> None:
    acc = AccumulatorState(8)
    acc.computed(slice(0, 8))
    assert acc.rest_of(slice(0, 4), wanted) == wanted, "nobody changed it"
    acc.clobbered(slice(0, 4), Clobbered("b", done, [slice(6, 8)]))
    assert acc.rest_of(slice(0, 4), wanted) == rest
    assert acc.rest_of(slice(0, 5), wanted) is None, "one more element than was changed"
    acc.computed(slice(4, 6))
    assert acc.rest_of(slice(0, 4), wanted) == rest, "what it did not read"
    acc.cleared(slice(7, 8))
    assert acc.rest_of(slice(0, 4), wanted) is None, "an operand is another one now"


def test_who_wrote_last() -> None:
    acc = AccumulatorState(4)
    assert not acc.storable(slice(0, 4))
    acc.computed(slice(0, 3))
    assert acc.storable(slice(0, 3)) and not acc.storable(slice(0, 4))
    acc.refuse_clobbered(slice(0, 4), "late", "a")
    acc.clobbered(slice(1, 2), Clobbered("early"))
    assert acc.storable(slice(0, 3))
    acc.refuse_clobbered(slice(2, 4), "late", "a")
    with pytest.raises(CodegenError) as error:
        acc.refuse_clobbered(slice(0, 2), "late", "a")
    assert str(error.value) == (
        "block late reads a after block early changed it in place; the ALU overwrites its first "
        "operand; stage a second copy"
    )
    acc.cleared(slice(1, 2))
    acc.refuse_clobbered(slice(0, 4), "late", "a")
    assert not acc.storable(slice(0, 3))


# ---------------------------------------------------------------- SRAM
def buffer(name: str, scope: str, *shape: int) -> tirx.Var:
    dtype = "int32" if scope == ACC else "int8"
    return tirx.decl_buffer(shape, dtype, name=name, scope=scope)


def test_tile_in_elements() -> None:
    for scope, unit in ((INP, 16), (WGT, 256), (ACC, 16)):
        tile = Tile(CONFIG, buffer("t", scope, 3, unit), (3, unit))
        assert (tile.size, tile.name, tile.scope) == (3, "t", scope)
        with pytest.raises(CodegenError) as error:
            Tile(CONFIG, buffer("t", scope, unit + 1), (unit + 1,))
        assert str(error.value) == (
            f"buffer t in {scope} has {unit + 1} scalars; an element has {unit}; stage whole "
            "elements"
        )


def test_slots_in_turn() -> None:
    """Instance i takes slot i mod slots; each slot has its own elements, each instance its name."""
    one, two = buffer("one", ACC, 3, 16), buffer("two", ACC, 5, 16)
    sram = SramMap(CONFIG, {one: (3, 16), two: (5, 16)}, {ACC: 3})
    bases, names = [], set()
    for _ in range(4):
        sram.new_instance(one, None)
        bases.append(sram[one].base)
        names.add(sram[one].instance)
    assert bases == [0, 3, 6, 0] and len(names) == 4
    sram.new_instance(two, None)
    assert sram[two].base == 9
    assert DEFAULT_SLOTS == 2
    plain = SramMap(CONFIG, {one: (3, 16)}, {INP: 3})
    for want in (0, 3, 0):
        plain.new_instance(one, None)
        assert plain[one].base == want


def test_weights_that_are_loaded_ahead_have_all_the_room() -> None:
    """The largest tile has slots as far as there is room; small ones and others keep theirs."""
    large, small = buffer("large", WGT, 100, 256), buffer("small", WGT, 10, 256)
    other = buffer("other", INP, 3, 16)
    shapes = {large: (100, 256), small: (10, 256), other: (3, 16)}
    sram = SramMap(CONFIG, shapes, {WGT: 2, INP: 2}, weight_room=450)
    bases = []
    for _ in range(5):
        for each in shapes:
            sram.new_instance(each, None)
        bases.append([sram[each].base for each in shapes])
    assert bases == [[0, 100, 0], [110, 210, 3], [220, 100, 0], [320, 210, 3], [0, 100, 0]]
    tiny = SramMap(CONFIG, {small: (10, 256)}, {WGT: 1}, weight_room=450)
    for _ in range(2):
        tiny.new_instance(small, None)
        assert tiny[small].base == 0


def test_a_virtual_thread_has_a_slot() -> None:
    one = buffer("one", ACC, 3, 16)
    sram = SramMap(CONFIG, {one: (3, 16)}, {})
    for thread in (0, 1, 2):
        sram.new_instance(one, thread)
        assert sram[one].base == 3 * thread
    sram.select_thread(1, [one])
    assert sram[one].base == 3


@pytest.mark.parametrize(
    ("scope", "depth", "unit"),
    [(INP, CONFIG.inp_depth, 16), (WGT, CONFIG.wgt_depth, 256), (ACC, CONFIG.acc_depth, 16)],
)
def test_full_sram(scope: str, depth: int, unit: int) -> None:
    whole, more = buffer("whole", scope, depth, unit), buffer("more", scope, 1, unit)
    sram = SramMap(CONFIG, {whole: (depth, unit), more: (1, unit)}, {scope: 1})
    sram.new_instance(whole, None)
    with pytest.raises(CodegenError) as error:
        sram.new_instance(more, None)
    assert str(error.value) == (
        f"{scope} needs {depth + 1} elements for more (slot 0); this machine has {depth}; use "
        "smaller tiles or one slot (vta.slots)"
    )


# ---------------------------------------------------------------- micro-ops
def test_modes_of_folding() -> None:
    assert LoopCompression("best", outermost=False, fuse_reset=True, share_sites=True) == BEST
    assert LoopCompression("tutorials", True, False, False) == TUTORIALS


@pytest.mark.parametrize("uop", [(1 << 11, 0, 0), (-1, 0, 0), (0, 1 << 12, 0), (0, 0, -1)])
def test_micro_op_over_its_fields(uop: tuple[int, int, int]) -> None:
    with pytest.raises(VTAError, match="micro-op"):
        UopBuffer(CONFIG, BEST).place(((0, 0, 0), uop), "site")


# ---------------------------------------------------------------- views
def test_reach_of_a_view() -> None:
    shape, strides = (3, 4, 2), (40, -5, 1)
    at = [7 + sum(i * s for i, s in zip(p, strides, strict=True)) for p in np.ndindex(*shape)]
    assert View(7, strides).reach(shape) == (min(at), max(at) + 1)
    assert View.dense((3, 4)) == View(0, (4, 1))
    assert View.dense((3, 4)).reach((3, 4)) == (0, 12)


# ---------------------------------------------------------------- what SRAM holds
def dma(
    tensor: str, first: int, sram: int, rows: int, width: int, stride: int, pads: tuple[int, ...]
) -> Insn:
    y0, y1, x0, x1 = pads
    names = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    fields = {"mem_type": int(MemType.INP), "y_size": rows, "x_size": width, "x_stride": stride}
    fields |= dict(zip(names, pads, strict=True))
    size, span = (y0 + rows + y1) * (x0 + width + x1), (rows - 1) * stride + width
    return Insn(
        Opcode.LOAD,
        LOAD,
        fields,
        reads=[(f"dram.{tensor}", first * 16, (first + span) * 16)],
        writes=[("inp", sram, sram + size)],
    )


class Held:
    """The same, element by element."""

    def __init__(self) -> None:
        self.inp: list[object] = [None] * 64

    def load(self, tensor: str, first: int, load: Insn) -> bool:
        (_, low, high), f = load.writes[0], load.fields
        box = np.full((f["y_size"], f["x_size"]), None, object)
        for r, c in np.ndindex(*box.shape):
            box[r, c] = (tensor, first + r * f["x_stride"] + c)
        pads = ((f["y_pad_0"], f["y_pad_1"]), (f["x_pad_0"], f["x_pad_1"]))
        brought = list(np.pad(box, pads, constant_values="zero").reshape(-1))
        before, self.inp[low:high] = self.inp[low:high], brought
        return before != brought

    def store(self, tensor: str, low: int, high: int) -> None:
        for k, held in enumerate(self.inp):
            if isinstance(held, tuple) and held[0] == tensor:
                first = held[1] * 16
                self.inp[k] = None if first < high and low < first + 16 else held


def test_loads_that_are_needed() -> None:
    """Random loads of two tensors, stores into them and loads of zeros, over sixty elements."""
    rng = np.random.default_rng(0)
    residency, held, kept = Residency(CONFIG), Held(), 0
    known: list[tuple[str, int, Insn]] = []
    for _ in range(2000):
        tensor = str(rng.choice(["a", "b"]))
        if rng.random() < 0.2:
            low = int(rng.integers(0, 200))
            high = low + int(rng.integers(1, 40))
            write = [(f"dram.{tensor}", low, high)]
            store = Insn(Opcode.STORE, STORE, {}, reads=[("acc", 0, 1)], writes=write)
            assert residency.needs(store)
            held.store(tensor, low, high)
            continue
        if known and rng.random() < 0.7:
            tensor, first, load = known[int(rng.integers(max(0, len(known) - 4), len(known)))]
        else:
            first, sram = int(rng.integers(0, 12)), int(rng.integers(0, 8))
            rows, width = int(rng.integers(1, 3)), int(rng.integers(1, 4))
            pads = tuple(int(p) for p in rng.integers(0, 2, 4))
            load = dma(tensor, first, sram, rows, width, width + int(rng.integers(3)), pads)
            known.append((tensor, first, load))
        needed = held.load(tensor, first, load)
        assert residency.needs(load) == needed
        kept += not needed
    assert kept > 300


def test_names_of_copies_do_not_meet() -> None:
    """A byte far into a tensor is not the first of the next one."""
    residency = Residency(CONFIG)
    for tensor, first in (("a", 0), ("a", (1 << 39) // 16), ("b", 0), ("c", 0)):
        assert residency.needs(dma(tensor, first, 0, 1, 1, 1, (0, 0, 0, 0)))


def test_what_computes_ends_a_copy() -> None:
    residency = Residency(CONFIG)
    load = dma("a", 0, 4, 1, 2, 2, (0, 0, 0, 0))
    assert [residency.needs(load), residency.needs(load)] == [True, False]
    beside = Insn(Opcode.GEMM, COMPUTE, {}, reads=[("inp", 4, 6)], writes=[("acc", 4, 6)])
    assert residency.needs(beside)
    assert not residency.needs(load)
    over = Insn(Opcode.GEMM, COMPUTE, {}, writes=[("inp", 5, 6)])
    assert residency.needs(over)
    assert residency.needs(load)


def test_stores_beside_a_copy() -> None:
    """Elements of bytes 32 to 63: a store that ends or begins there leaves them as they are."""
    residency = Residency(CONFIG)
    load = dma("a", 2, 4, 1, 2, 2, (0, 0, 0, 0))
    assert residency.needs(load)
    for low, high, ends in ((16, 32, False), (64, 80, False), (31, 33, True), (63, 64, True)):
        write = [("dram.a", low, high)]
        assert residency.needs(Insn(Opcode.STORE, STORE, {}, writes=write))
        assert residency.needs(load) == ends


def test_a_store_of_rows_ends_what_lies_between_them() -> None:
    """Rows of bytes 16 to 31 and 96 to 111: whoever holds an element from the first to the last."""
    rows = [("dram.a", 16, 32), ("dram.a", 96, 112)]
    for first, ends in ((0, False), (1, True), (3, True), (6, True), (7, False)):
        residency, load = Residency(CONFIG), dma("a", first, 4, 1, 1, 1, (0, 0, 0, 0))
        assert residency.needs(load)
        assert residency.needs(Insn(Opcode.STORE, STORE, {}, writes=rows))
        assert residency.needs(load) == ends
