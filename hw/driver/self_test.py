"""A short program that tells a machine from others: run before a board is trusted."""

from __future__ import annotations

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.driver.execution import Runner
from vta_byoc.hw.driver.protocol import DeviceDriver, DeviceError
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode

ELEMENTS = 2
"""Elements of each memory that the program uses."""
FACTOR = 3
_OCTETS = 4
_PLACES = (MemType.UOP, MemType.INP, MemType.WGT, MemType.ACC_8BIT)
"""What it loads, in the order in which it lies in the arena; results come behind."""


def checked_runner(driver: DeviceDriver) -> Runner:
    """A runner on a device that has passed the self-test.

    Raises:
        DeviceError: it has not, or gave no result.
    """
    runner = Runner(driver)
    self_test(runner)
    return runner


def self_test(runner: Runner) -> None:
    """Multiply, add and shift on every lane, and compare all four bytes of the accumulators.

    Raises:
        DeviceError: a byte differs, or there was no result.
    """
    config, name = runner.driver.capabilities(), runner.driver.version().device
    place = _place_bytes(config)
    head, wanted = _case(config, place)
    size = len(head) + _OCTETS * place
    none = np.zeros(0, np.int8)
    stream = np.array(_stream(config, place), np.uint64)
    try:
        arena, _ = runner.run(config, stream, head, none, size)
    except DeviceError as err:
        raise DeviceError(f"{name} did not pass its self-test: {err}") from err
    found = arena[len(head) :].reshape(_OCTETS, place)[:, : wanted.shape[1]]
    wrong = int((found != wanted).sum())
    if wrong:
        raise DeviceError(
            f"{name} did not pass its self-test: {wrong} of {wanted.size} bytes differ from those "
            f"of machine {config.key}; the design in it is another machine; load the design of "
            f"{config.target}, or name the machine of this one"
        )


def _place_bytes(config: VTAConfig) -> int:
    """Bytes of each place in the arena: all its elements, at an address that suits every memory."""
    return ELEMENTS * max(dram_elem_bytes(config, mem) for mem in MemType)


def _case(config: VTAConfig, place: int) -> tuple[np.ndarray, np.ndarray]:
    """The head of the arena, int8, and the bytes of the results, int8 (4, lanes)."""
    rng = np.random.default_rng(1)
    inp = rng.integers(-128, 128, (ELEMENTS, config.batch, config.block), np.int8)
    wgt = rng.integers(-128, 128, (ELEMENTS, config.block, config.block), np.int8)
    bias = rng.integers(-128, 128, inp.shape, np.int8)
    isa = ISA.of(config)
    uops = np.array([isa.encode_uop(), isa.encode_uop(src=ELEMENTS)], np.uint32)
    head = np.zeros(len(_PLACES) * place, np.int8)
    for i, array in enumerate((uops, inp, wgt, bias)):
        data = array.reshape(-1).view(np.int8)
        head[i * place : i * place + len(data)] = data
    total = inp.astype(np.int32) @ wgt.astype(np.int32).transpose(0, 2, 1)
    if _widens(config):
        total += bias
    if config.capabilities.mul:
        total *= FACTOR
    octets = [(total >> (8 * i)).astype(np.int8).reshape(-1) for i in range(_OCTETS)]
    return head, np.stack(octets)


def _widens(config: VTAConfig) -> bool:
    return config.capabilities.acc_8bit and config.acc_depth >= 2 * ELEMENTS


def _stream(config: VTAConfig, place: int) -> list[tuple[int, int]]:
    """The program: every conflict between the queues has its token."""
    encode = ISA.of(config).encode

    def transfer(opcode: Opcode, mem: MemType, at: int, **more: int) -> tuple[int, int]:
        base = at * place // dram_elem_bytes(config, mem)
        size = {"y_size": 1, "x_size": ELEMENTS, "x_stride": ELEMENTS}
        return encode(opcode, mem_type=mem, dram_base=base, **size, **more)

    load = Opcode.LOAD
    loop = {"iter_out": ELEMENTS, "iter_in": 1, "dst_factor_out": 1, "src_factor_out": 1}
    one = {**loop, "uop_end": 1}
    stream = [
        transfer(load, MemType.UOP, 0),
        transfer(load, MemType.INP, 1),
        transfer(load, MemType.WGT, 2, push_next=1),
        encode(Opcode.GEMM, **one, reset=1, pop_prev=1),
        encode(Opcode.GEMM, **one, wgt_factor_out=1),
    ]
    if _widens(config):
        stream.append(transfer(load, MemType.ACC_8BIT, 3, sram_base=ELEMENTS))
        stream.append(encode(Opcode.ALU, **loop, uop_bgn=1, uop_end=2, alu_opcode=AluOp.ADD))
    factor = {"alu_opcode": AluOp.MUL, "imm": FACTOR}
    if not config.capabilities.mul:
        factor = {"alu_opcode": AluOp.SHR, "imm": 0}
    stream.append(encode(Opcode.ALU, **one, use_imm=1, push_next=1, **factor))
    for i in range(_OCTETS):
        at = len(_PLACES) + i
        stream.append(transfer(Opcode.STORE, MemType.OUT, at, pop_prev=1, push_prev=1))
        last = i == _OCTETS - 1
        shift = {"alu_opcode": AluOp.SHR, "use_imm": 1, "imm": 8}
        stream.append(encode(Opcode.ALU, **one, **shift, pop_next=1, push_next=int(not last)))
    return [*stream, encode(Opcode.FINISH)]
