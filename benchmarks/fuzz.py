"""Random correct programs on every simulator: functional = numpy = any legal order, all bytes.

A long hunt: runs until it has executed --instructions, over machines of BATCH 1, 2 and 4 and BLOCK
8, 16 and 32. The static verifier must be silent on every program. Stops at the first disagreement
with the machine and seed that reproduce it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.progress import Progress

from benchmarks._figures import Figure, arguments, report
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.reference import numpy_model
from vta_byoc.hw.reference.interleaving import POLICIES, run_interleaved
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.verify.verifier import verify

MACHINES = {
    "1x16": VTAConfig.preset("sim"),
    "chisel": VTAConfig.preset("chisel"),
    "2x16": VTAConfig.preset("2x16"),
    "1x32": VTAConfig.preset("1x32"),
    "4x8": VTAConfig.preset("tophub_4x8"),
    "1x8": VTAConfig(log_block=3, log_inp_buff_size=12, log_wgt_buff_size=13, log_acc_buff_size=14),
    "4x16": VTAConfig(log_batch=2, log_inp_buff_size=15, log_acc_buff_size=17),
}
LENGTH = 10
"""Steps of a generated program; with loads, stores and tokens about twice as many instructions."""


class Disagreement(AssertionError):
    """Two executions of one correct program differ, or the verifier flags it."""


def try_program(machine: str, seed: int) -> Counter[str]:
    """Run one program every way; returns what it was made of. Raises Disagreement."""
    config = MACHINES[machine]
    program, inputs = random_safe_program(config, np.random.default_rng(seed), LENGTH)
    where = f"machine {machine}, seed {seed}"
    violations = verify(program)
    if violations:
        raise Disagreement(f"{where}: the verifier flags a correct program: {violations[0]}")
    want = simulator.run(program, inputs)
    model = numpy_model.run_stream(config, program.insns, program.new_arena(inputs))
    _all_equal(f"{where}: numpy model", want, model)
    policy = POLICIES[seed % len(POLICIES)]
    _all_equal(f"{where}: order {policy}", want, run_interleaved(program, inputs, policy, seed))
    if want.counters != program.counters():
        raise Disagreement(f"{where}: counters {want.counters}, decoded {program.counters()}")
    return _contents(program, policy)


def _all_equal(what: str, want: RunResult, got: RunResult) -> None:
    """DRAM and all four on-chip memories."""
    _same(what, want.arena, got.arena)
    for name, memory in want.sram.items():
        _same(f"{what}, {name}", memory, got.sram[name])


def _same(what: str, want: np.ndarray, got: np.ndarray) -> None:
    if not np.array_equal(want, got):
        count = int(np.count_nonzero(want != got))
        raise Disagreement(f"{what}: {count} of {want.size} values differ")


def _contents(program: Program, policy: str) -> Counter[str]:
    codes = (program.insns[:, 0] & np.uint64(7)).tolist()
    found = Counter(Opcode(c).name for c in codes)
    return found + Counter({"programs": 1, f"order {policy}": 1})


def cases(first: int) -> Iterator[tuple[str, int]]:
    """(machine, seed) for ever, machines in turn."""
    seed = first
    while True:
        for machine in MACHINES:
            yield machine, seed
            seed += 1


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--instructions", type=int, default=1_000_000, help="how many to run")
    parser.add_argument("--seed", type=int, default=1_000_000, help="first seed")
    options = parser.parse_args()
    start, total, done, failures = time.perf_counter(), Counter[str](), 0, []
    with Progress(disable=options.json) as progress:
        task = progress.add_task("instructions", total=options.instructions)
        for machine, seed in cases(options.seed):
            try:
                found = try_program(machine, seed)
            except Disagreement as error:
                failures.append(str(error))
                break
            total += found
            done += sum(found[op.name] for op in Opcode)
            progress.update(task, completed=done)
            if done >= options.instructions:
                break
    figures = [
        Figure("instructions", done, "instructions"),
        Figure("programs", total["programs"], "programs"),
        Figure.at_most("disagreements", len(failures), "programs", 0),
        Figure("seconds", time.perf_counter() - start, "s"),
    ]
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return report("fuzz", figures, options.json, contents=dict(sorted(total.items())))


if __name__ == "__main__":
    sys.exit(main())
