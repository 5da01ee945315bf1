"""Attention in integers against float, over the spread of the scores.

    python benchmarks/attention.py          # 3 heads, 197 tokens, as in ViT-Tiny

Queries, keys and values are normal; scores have a standard deviation of 1, 2, 3 and 4. The module
is quantized with calibration; results are int8 and reach as far as the largest. The figures are
means of three draws: against float attention on the same int8 operands, and on the floats behind
them (`..._of_floats`): rounding queries and keys moves a share by as much as the scores are
spread, whatever is computed from them then. The first draw is compiled for the preset sim too, and
every tensor that VTA stores is compared with the integer reference.

`causal_128_cycles` and `causal_256_cycles` are those of causal attention of so many tokens; the
baseline computes all scores and masks them, and gives the same results, bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from vta_byoc import quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.ir.attention import HALF, never_seen
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.ops.exponential import attention_of, exponential_of
from vta_byoc.quantization.scales import Scale
from vta_byoc.runtime.execute import profile
from vta_byoc.schedule import random_inputs
from vta_byoc.strategies.attention.attention import ATTENTION
from vta_byoc.strategies.base import LayerWork
from vta_byoc.testing.strategies import layer_program
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner
from vta_byoc.validation.noise import decibels
from vta_byoc.workload.attention import AttentionWorkload

SPREADS = (1, 2, 3, 4)
HEADS, TOKENS, DEPTH = 3, 197, 64
DRAWS = 3
LEAST = 32.0
"""dB, at every spread."""
CAUSAL = (128, 256)
CAUSAL_UNIT = 2e-4
"""What one in a score is worth there: scores of drawn operands have a deviation of about 9."""
CONFIG = VTAConfig.preset("sim")
NAMES = ("queries", "keys", "values")


@dataclass(frozen=True)
class Nearness:
    """How near attention is to float, in dB.

    Attributes:
        of_operands: against float attention on the same int8 operands.
        of_floats: against float attention on the floats that were quantized.
    """

    of_operands: float
    of_floats: float


def attention(spread: float, heads: int, tokens: int, depth: int) -> tvm.IRModule:
    """Softmax attention of which normal queries and keys give scores of such a spread."""
    builder = relax.BlockBuilder()
    kind = relax.TensorType((1, heads, tokens, depth), "float32")
    query, key, value = params = [relax.Var(name, kind) for name in NAMES]
    with builder.function("main", params):
        with builder.dataflow():
            turned = builder.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
            scores = builder.emit(relax.op.matmul(query, turned))
            factor = relax.const(np.float32(spread / math.sqrt(depth)))
            scaled = builder.emit(relax.op.multiply(scores, factor))
            shares = builder.emit(relax.op.nn.softmax(scaled, -1))
            result = builder.emit_output(relax.op.matmul(shares, value))
        builder.emit_func_output(result)
    return builder.get()


def attended(spread: float, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The same in float64."""
    query, key, value = (np.asarray(x, np.float64) for x in operands)
    scores = query @ np.swapaxes(key, -1, -2) * (spread / math.sqrt(query.shape[-1]))
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True) @ value)


def steps(mod: tvm.IRModule) -> list[float]:
    """What one in the int8 form of each operand is worth."""
    found = {
        binding.value.args[0].name: float(binding.value.args[1].value.numpy())
        for binding in straight_bindings(mod["main"])
        if op_name(binding.value) == "relax.quantize"
    }
    return [found[name] for name in NAMES]


def sqnr(found: np.ndarray, wanted: np.ndarray) -> float:
    """In dB."""
    return decibels(float(np.square(wanted).sum()), float(np.square(found - wanted).sum()))


@dataclass(frozen=True)
class Drawn:
    """Attention that was drawn and quantized.

    Attributes:
        spread: the standard deviation of its scores.
        floats: queries, keys and values.
        integers: the quantized module.
    """

    spread: float
    floats: list[np.ndarray]
    integers: tvm.IRModule

    def nearness(self) -> Nearness:
        """How near the integer reference is to float."""
        each = zip(self.floats, steps(self.integers), strict=True)
        rounded = [np.clip(np.rint(x / step), -128, 127) * step for x, step in each]
        (found,) = reference_runner(self.integers, {})(self.floats).outputs
        operands, floats = (attended(self.spread, x) for x in (rounded, self.floats))
        return Nearness(sqnr(found, operands), sqnr(found, floats))

    def different(self) -> int:
        """Tensors in which VTA differs from the reference."""
        compiled = compile_module(self.integers, CONFIG)
        assert len(compiled.programs) == 1, "attention is one region"
        reference = reference_runner(self.integers, compiled.programs)(self.floats)
        run = profile(compiled.exe, self.floats, arenas=True)
        checks = compare_outputs(["out"], run.outputs, reference)
        checks += compare_stored(run, compiled.programs, reference)
        return sum(not check.equal for check in checks)


@dataclass(frozen=True)
class Causal:
    """Causal attention, its scores computed as far as they are seen, and all of them.

    Attributes:
        cycles: of the first.
        every: of the second.
        different: results in which the two differ.
    """

    cycles: int
    every: int
    different: int


def causal(tokens: int, heads: int = HEADS, depth: int = DEPTH) -> Causal:
    """Of int8 queries, keys and values of the preset sim."""
    k, far = CONFIG.block, 4 * depth * HALF**2
    exponential = exponential_of(CAUSAL_UNIT, far, "attention")
    numbers = attention_of(tokens, exponential, 1.0, Scale(1 / 16), (-128, 127), "attention")
    sizes = heads, tokens, tokens, depth, depth
    steps = dataclasses.astuple(numbers)[1:]
    mask = np.where(np.tri(tokens), 0, -far)[None].astype(np.int64)
    assert never_seen(mask, numbers, depth)[0, 0, 1:].all(), "what is masked has the share 0"
    seen, every = (
        _ran(AttentionWorkload(*sizes, steps, 1, k, causal=causal), mask) for causal in ((1, 0), ())
    )
    return Causal(seen[0], every[0], int((seen[1] != every[1]).sum()))


def _ran(work: AttentionWorkload, mask: np.ndarray) -> tuple[int, np.ndarray]:
    """The cycles of an attention by itself, and its result on drawn operands."""
    schedule = ATTENTION.choose(LayerWork(work), CONFIG)
    definition = ATTENTION.compute(schedule, CONFIG)
    operands = random_inputs(definition, 0)[: len(work.in_shapes)]
    values = [*operands, *ATTENTION.constants(schedule, {"mask": mask}, CONFIG)]
    program = layer_program(ATTENTION, schedule, CONFIG, definition, values)
    given = {f"x{number}": operand for number, operand in enumerate(operands)}
    return simulate(program).cycles, simulator.run(program, given).outputs["y"]


def causal_figures(tokens: int) -> list[Figure]:
    """Of so many tokens."""
    found, name = causal(tokens), f"causal_{tokens}"
    return [
        Figure(
            f"{name}_cycles", found.cycles, "cycles", baseline=found.every, baseline_name="all keys"
        ),
        Figure(f"{name}_saved", 100 * (1 - found.cycles / found.every), "%"),
        Figure.at_most(f"{name}_different", found.different, "values", 0),
    ]


def drawn(
    spread: float, seed: int, heads: int = HEADS, tokens: int = TOKENS, depth: int = DEPTH
) -> Drawn:
    """Attention whose scores have a standard deviation of `spread`."""
    rng = np.random.default_rng(seed)
    floats = [rng.normal(size=(1, heads, tokens, depth)).astype("float32") for _ in NAMES]
    mod = attention(spread, heads, tokens, depth)
    calibration = [dict(zip(NAMES, floats, strict=True))]
    integers = quantize(mod, calibration=calibration, config=CONFIG, scales="mul")
    return Drawn(spread, floats, integers)


def main() -> int:
    options = arguments(__doc__.splitlines()[0]).parse_args()
    figures, different = [], 0
    for spread in SPREADS:
        draws = [drawn(spread, seed) for seed in range(DRAWS)]
        found = [each.nearness() for each in draws]
        different += draws[0].different()
        value = float(np.mean([each.of_operands for each in found]))
        name = f"attention_sqnr_sigma_{spread}"
        figures.append(Figure(name, value, "dB", target=LEAST, ok=value >= LEAST))
        floats = float(np.mean([each.of_floats for each in found]))
        figures.append(Figure(f"{name}_of_floats", floats, "dB"))
    figures.append(Figure.at_most("attention_different", different, "tensors", 0))
    for tokens in CAUSAL:
        figures += causal_figures(tokens)
    return report("attention", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
