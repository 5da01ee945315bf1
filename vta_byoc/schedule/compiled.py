"""A scheduled function as a program of its own that can be looked at, run and shipped."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target import Target

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.html_table import html_table
from vta_byoc.hw.program.program import Program, Symbol
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import TimingResult
from vta_byoc.schedule.nests import ScheduleError


@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """A scheduled function compiled for one machine.

    Calling it runs it: ``kernel(data, weight, device="sim")`` returns the output as an array.

    Attributes:
        name: the name of the kernel, and of the one layer of its program.
        func: the scheduled function.
        config: the machine.
        program: its instructions, micro-ops and constants, which the verifier has proven safe.
        constants: the values of the parameters that are part of the program, by name.
        blocks: for each instruction the block that it executes a part of, "" for one that moves
            tokens only.
    """

    name: str
    func: tirx.PrimFunc
    config: VTAConfig
    program: Program
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        """The tensors that a call takes, in order: name, shape and dtype of each."""
        return tuple(self.program.of_kind("input"))

    @property
    def output(self) -> Symbol:
        """The tensor that a call returns."""
        return self.program.of_kind("output")[0]

    @property
    def counters(self) -> dict[str, int]:
        """The seven counters: bytes loaded and stored by kind, GEMM and ALU micro-ops executed."""
        return self.program.counters()

    @functools.cached_property
    def timing(self) -> TimingResult:
        """The cycles that the timing model gives it, for each queue and instruction."""
        return simulate(self.program)

    def __call__(self, *arrays: np.ndarray, device: str = "sim") -> np.ndarray:
        """Run it once.

        Args:
            arrays: one for each of `inputs`, in order, of its shape and dtype.
            device: "sim", "tsim", "rtl" or "null" (zeros, nothing is executed).

        Raises:
            VTAError: arrays that it does not take, or no such device.
        """
        values = self._checked(arrays)
        return simulator.run(self.program, values, device=device).outputs[self.output.name]

    def _checked(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        wanted = ", ".join(f"{s.name} {s.dtype} {s.shape}" for s in self.inputs) or "none"
        if len(arrays) != len(self.inputs):
            raise ScheduleError(
                f"{len(arrays)} arrays given to kernel {self.name}; it takes {len(self.inputs)}: "
                f"{wanted}; give one for each"
            )
        values = {}
        for tensor, given in zip(self.inputs, arrays, strict=True):
            array = np.asarray(given)
            if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
                raise ScheduleError(
                    f"{tensor.name} of kernel {self.name} is {array.dtype} {array.shape}; the "
                    f"kernel takes {tensor.dtype} {tensor.shape}; convert it"
                )
            values[tensor.name] = array
        return values

    # ------------------------------------------------------------ looking at it
    def disassemble(self) -> str:
        """The program as text: its tensors, then every instruction."""
        return self.program.disassemble()

    def trace(self, path: str | Path) -> None:
        """Write a timeline of every instruction for the Perfetto and Chrome trace viewers."""
        from vta_byoc.reports.run.trace import chrome_trace

        document = chrome_trace(self.program, self.timing, self.name)
        Path(path).write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")

    def report(self, path: str | Path) -> None:
        """Write the HTML page of docs/report.md about this kernel: cycles, traffic, roofline."""
        from vta_byoc.reports.html.report import html_report
        from vta_byoc.reports.run.layers import model_facts
        from vta_byoc.reports.run.program_placement import program_placement

        by = f"{self.name}, a schedule of the user's"
        placement = program_placement(self.program, "vta.kernel", by)
        facts = model_facts(self.config, {self.name: self.program}, placement)
        page = html_report(facts, self.name, self.config.target)
        Path(path).write_text(page, encoding="utf-8")

    # ------------------------------------------------------------ shipping it
    def module(
        self, target: Target | Mapping[str, Any] | None = None, *, device: str = "sim"
    ) -> tvm.runtime.Module:
        """The kernel as a module for the Relax virtual machine.

        Its ``main`` takes the inputs in order and returns the output:
        ``relax.VirtualMachine(module, tvm.cpu())["main"]``. `vta_byoc.profile` runs it and collects
        its counters; ``module.export_library(path)`` makes a library that ``load_module`` and an
        RPC server take with the runtime of TVM alone.

        Args:
            target: of the host; this machine's processor when None. Libraries that run elsewhere
                want a fixed one, such as ``{"kind": "llvm", "mcpu": "x86-64-v3"}``.
            device: the device that executes the program, as in a call.
        """
        from vta_byoc.schedule.module import build_module

        return build_module(self.program, self.name, target, device)

    # ------------------------------------------------------------ showing it
    def __repr__(self) -> str:
        return (
            f"<Kernel {self.name}: {len(self.program.insns):,} instructions, "
            f"{self.timing.cycles:,} cycles on {self.config.target} ({self.config.name})>"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("machine", f"{self.config.target} ({self.config.name})"),
            *(("input", f"{s.name} {s.dtype} {s.shape}") for s in self.inputs),
            ("output", f"{self.output.name} {self.output.dtype} {self.output.shape}"),
            ("instructions", f"{len(self.program.insns):,}"),
            ("cycles", f"{self.timing.cycles:,} ({self.timing.milliseconds:,.3f} ms)"),
            *((name, f"{value:,}") for name, value in self.counters.items()),
        ]
        return html_table(self.name, ("", ""), facts)
