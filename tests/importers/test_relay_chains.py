"""Random integer chains as `relay.quantize` may write them: wrapped or proven, always equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import relay_files
from draws import draws
from importer_draws import Case, Draw
from importer_runs import EQUAL, outcomes
from relay_numpy import evaluate

from vta_byoc.importers.load import load_model
from vta_byoc.importers.relay.read import read_text
from vta_byoc.ir.bindings import op_name, straight_bindings

CASES = draws(60, 120)
SHAPE = (1, 4, 6, 6)


class Chain(Draw):
    """A text under construction on int8 `%x`."""

    def __init__(self, number: int) -> None:
        super().__init__(77, number)
        self.lines: list[str] = []
        self.constants: list[np.ndarray] = []
        self.value, self.dtype = "%x", "int8"

    def line(self, call: str, dtype: str = "") -> None:
        self.value = f"%{len(self.lines)}"
        self.lines.append(f"  {self.value} = {call};")
        self.dtype = dtype or self.dtype

    def constant(self, most: int, dtype: str = "int32", shape: tuple[int, ...] = (4, 1, 1)) -> str:
        self.constants.append(self.integers(shape, -most, most).astype(dtype))
        return f"meta[relay.Constant][{len(self.constants) - 1}]"

    def widen(self) -> None:
        """A layer, or a cast."""
        if self.flag():
            weight = self.constant(self.pick(3, 127), "int8", (4, 4, 1, 1))
            self.line(f'nn.conv2d({self.value}, {weight}, channels=4, kernel_size=[1, 1], '
                      'out_dtype="int32")', "int32")  # fmt: skip
        else:
            self.line(f'cast({self.value}, dtype="int32")', "int32")

    def step(self) -> None:
        value, most = self.value, 1 << self.size(2, 31)
        bound = f"{self.rng.uniform(0, most):.5e}f"
        self.line(
            self.pick(
                f"add({value}, {self.constant(min(most, 2**31 - 1))})",
                f"add({value}, {min(most, 2**31) // 2} /* ty=int32 */)",
                f"subtract({value}, {min(most, 2**31) // 2} /* ty=int32 */)",
                f"left_shift({value}, {self.size(0, 21)} /* ty=int32 */)",
                f"right_shift({value}, {self.size(0, 28)} /* ty=int32 */)",
                f"multiply({value}, {self.size(-9, 99)} /* ty=int32 */)",
                f"nn.relu({value})",
                f"clip({value}, a_min=-{bound}, a_max={bound})",
                f"nn.max_pool2d({value}, pool_size=[2, 2], padding=[0, 0, 1, 1])",
            )
        )

    def narrow(self) -> None:
        if self.size(1, 4) > 1:
            self.line(f"clip({self.value}, a_min=-127f, a_max=127f)")
        self.line(f'cast({self.value}, dtype="int8")', "int8")

    def text(self) -> str:
        """Widen, steps, narrow, once or twice."""
        for _ in range(self.size(1, 2)):
            self.widen()
            for _ in range(self.size(1, 5)):
                self.step()
            self.narrow()
        dims = ", ".join(map(str, SHAPE))
        head = f"def @main(%x: Tensor[({dims}), int8]) {{\n"
        text = head + "\n".join([*self.lines, f"  {self.value}", "}"])
        return text + relay_files.metadata(self.constants)


def case(folder: Path, number: int) -> Case:
    chain = Chain(number)
    text = chain.text()
    feed = chain.integers(SHAPE, -128, 127).astype("int8")
    path = folder / f"{number}.relay"
    path.write_text(text, encoding="utf-8")
    module = read_text(text, "the text")
    return Case("chain", lambda: path, [feed], lambda: evaluate(module, {"x": feed}),
                "".join(chain.lines))  # fmt: skip


def test_random_chains_are_equal(tmp_path: Path) -> None:
    found = outcomes([case(tmp_path, number) for number in range(CASES)])
    wrong = [f"{o.kind}: {o.text} {o.case.text}" for o in found if o.kind != EQUAL]
    assert not wrong, "\n".join(wrong[:5])
    wide = sum(
        any("int64" in str(b.var.ty) for b in straight_bindings(load_model(o.case.model())["main"]))
        for o in found
    )
    shifted = sum("left_shift" in o.case.text for o in found)
    print(f"{CASES} chains: {wide} may wrap, {shifted} shift left")
    assert CASES // 10 < wide < CASES


def test_operators_are_those_of_the_dialect(tmp_path: Path) -> None:
    known = {
        *("add", "subtract", "multiply", "left_shift", "right_shift", "maximum", "minimum"),
        *("astype", "nn.conv2d", "nn.max_pool2d"),
    }
    for number in range(20):
        mod = load_model(case(tmp_path, number).model())
        names = {op_name(b.value).removeprefix("relax.") for b in straight_bindings(mod["main"])}
        assert names <= known | {""}
