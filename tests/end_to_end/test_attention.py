"""Attention in networks: every stored tensor equals the integer module's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import attention, checked, devices, quantized, samples
from region_runs import Found
from small_models import call

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.reports.run.timing import time_programs

MACHINES = ("sim", "1x32")


def rules(compiled: Found) -> list[str]:
    """By which patterns operators went to VTA."""
    return [op.why.rule for op in compiled.placement if op.device == "vta"]


@pytest.mark.parametrize("seed", range(6))
def test_drawn_attention(seed: int) -> None:
    """Heads, lengths, head sizes, keys of another input, masks of all kinds."""
    rng = np.random.default_rng(seed)
    config = VTAConfig.preset(MACHINES[seed % len(MACHINES)])
    tokens, keys = (int(n) for n in rng.integers(16, 70, 2))
    heads, other = int(rng.integers(1, 4)), seed % 3 == 2
    width = int(rng.choice([config.block, 2 * config.block, config.block + 8]))
    shape = (tokens, keys if other else tokens)
    mask = hidden = None
    if seed % 4 == 1:
        mask = np.where(np.tri(*shape), 0.0, -np.inf)
    elif seed % 4 == 2:
        mask = rng.normal(size=(1, heads, *shape))
    elif seed % 4 == 3:
        hidden = rng.random(shape) < 0.4
    mod = attention(
        tokens, heads, width, keys if other else None, seed, mask=mask, hidden=hidden
    )
    compiled = checked(mod, config, "mul" if seed % 2 else "pow2")
    assert "pattern vta.attention" in rules(compiled)
    assert set(devices(compiled, "relax.matmul")) == {"vta"}


@pytest.mark.parametrize("machine", MACHINES)
def test_one_region(machine: str) -> None:
    """From the projections to the sum with the input: nothing is left to the CPU."""
    config = VTAConfig.preset(machine)
    compiled = checked(attention(2 * config.block, 3, config.block), config, "mul")
    assert len(compiled.programs) == 1
    assert [op.name for op in compiled.placement if op.device == "cpu"] == ["x"]


def test_scratch_tensors_stay_inside(capsys: pytest.CaptureFixture[str]) -> None:
    """The shares and the turned result are in the program and nowhere else."""
    config = VTAConfig.preset("sim")
    compiled = checked(attention(48, 2, 16), config, "mul")
    (program,) = compiled.programs.values()
    kinds = {s.name: s.kind for s in program.symbols if "__scratch" in s.name}
    assert len(kinds) == 3
    assert set(kinds.values()) == {"temp"}
    assert sum(t.cycles for t in time_programs(compiled.programs).values()) > 0


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ("pynq", "CAPABILITIES.mul is false"),
        ("2x16", "the machine has BATCH 2; attention takes 1"),
    ],
)
def test_machines_that_do_not_attend(machine: str, reason: str) -> None:
    """The softmax is a float operator, and says why."""
    config = VTAConfig.preset(machine)
    mod = attention(32, 2, 16)
    found = float_regions(quantized(mod, config))
    assert any(reason in each.text for each in found.values())
    compiled = checked(mod, config)
    assert "pattern vta.attention" not in rules(compiled)
    assert devices(compiled, "relax.nn.softmax") == ["cpu"]


def test_keys_that_do_not_fit() -> None:
    """A block of queries has its scores in the accumulators; the products stay on VTA."""
    config = VTAConfig(log_acc_buff_size=13)
    mod = attention(150, 1, 16)
    found = float_regions(quantized(mod, config))
    assert any("of the scores of an attention fits" in each.text for each in found.values())
    compiled = checked(mod, config)
    assert devices(compiled, "relax.nn.softmax") == ["cpu"]
    assert set(devices(compiled, "relax.matmul")) == {"vta"}


def test_another_softmax_stands_alone() -> None:
    """Over queries, it is none of an attention."""
    config = VTAConfig.preset("sim")
    compiled = checked(attention(32, 2, 16, axis=-2), config)
    assert "relax.nn.softmax" not in {each.op for each in compiled.placement}
    assert "pattern vta.softmax" in rules(compiled)
    assert "pattern vta.attention" not in rules(compiled)
    assert len(compiled.programs) == 1


def test_near_float() -> None:
    """What a block computes, against the float module."""
    for scales in ("mul", "pow2"):
        mod = attention(64, 2, 32)
        (given, *_) = samples(mod)
        (exact,) = call(mod, *given)
        (found,) = call(quantized(mod, VTAConfig.preset("sim"), scales), *given)
        noise = np.square(found - exact).sum() / np.square(exact).sum()
        assert -10 * np.log10(noise) > (35 if scales == "mul" else 28)


def test_keys_behind_a_causal_mask() -> None:
    """What no query of a block sees is not computed, and every stored tensor is the same."""
    config, bias = VTAConfig.preset("sim"), np.random.default_rng(0).normal(size=(70, 70))
    masks = bias, np.where(np.tri(70), bias, -np.inf), np.where(np.tri(70), 0, -1e4)
    found = [checked(attention(70, 2, 24, mask=mask), config, "mul") for mask in masks]
    bounds = [
        op.bound for each in found for op in each.placement if op.why.rule.endswith("attention")
    ]
    assert bounds[0] > bounds[1] == bounds[2] > 0
