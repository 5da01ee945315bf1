"""How random networks are hunted: by seed, shrunk when they fail, counted when they do not."""

from __future__ import annotations

import json

import drawn_transformers
import network_hunt
import numpy as np
import pytest
from hypothesis import given, settings
from layer_runs import Run, run_module
from network_demands import AGAINST_COST, INJECTED
from network_hunt import Disagreement, Tally, try_network
from network_runs import Outcome
from network_tiles import CONSUMERS
from random_graphs import Network, networks

from benchmarks import fuzz_networks
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.table import entries

SHORT = 7
"""A seed whose network takes the short way."""


def refuse(op: str) -> network_hunt.Way:
    """A compiler that fails on one operator."""

    def way(network: Network, config: VTAConfig) -> Outcome:
        operators = [node.op_type for node in network.model.graph.node]
        if op in operators:
            raise ValueError(f"{op} is not taken")
        return Outcome()

    return way


@settings(derandomize=True, database=None, max_examples=50)
@given(networks())
def test_networks_have_two_to_twelve_operators(network: Network) -> None:
    assert 2 <= len(network.kinds) <= 12
    assert 1 <= len(network.inputs) <= 3 and network.model.graph.output
    lines = repr(network).splitlines()
    wanted = 2 + len(network.inputs) + len(network.model.graph.node) + bool(network.form)
    assert len(lines) == wanted
    assert [x.shape for x in network.samples(0)] == list(network.inputs.values())


def test_a_seed_is_one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def keep(network: Network, config: VTAConfig) -> Outcome:
        seen.append(network.model.SerializeToString())
        return Outcome()

    monkeypatch.setattr(network_hunt, "short", keep)
    tally = Tally()
    for seed in (SHORT, SHORT + 1, SHORT):
        try_network(seed, tally)
    assert seen[0] == seen[2] != seen[1]
    assert (tally.networks, tally.with_region, tally.share) == (3, 0, 0)
    assert tally.rarest == (entries()[0].name, 0)


def test_a_failure_is_shrunk_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_hunt, "short", refuse("Relu"))
    with pytest.raises(Disagreement) as err:
        for seed in range(SHORT, SHORT + 40):
            try_network(seed, Tally())
    text = str(err.value)
    head, _, smallest = text.partition("smallest network: ")
    assert head.startswith("seed ") and ": ValueError: Relu is not taken\n" in head
    operators = [line for line in smallest.splitlines() if " = " in line and "input" not in line]
    assert len(operators) <= 2 and " = Relu(" in smallest, text


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: object, **options: object) -> Run:
        run = run_module(*args, **options)  # type: ignore[arg-type]
        run.outputs[0] = run.outputs[0] + np.float32(1)
        return run

    monkeypatch.setattr("network_runs.run_module", wrong)
    monkeypatch.setattr(network_hunt, "SHRINKING", 1.0)
    with pytest.raises(
        Disagreement, match=f"seed {SHORT}, machine 2x16, short way: AssertionError: Arrays are"
    ) as err:
        try_network(SHORT, Tally())
    assert "output 0" in str(err.value)


def test_the_hunt_stops_at_the_fifth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seed: int, tally: Tally) -> None:
        raise Disagreement(f"seed {seed}: found")

    monkeypatch.setattr(fuzz_networks, "try_network", broken)
    monkeypatch.setattr("sys.argv", ["fuzz_networks.py", "--json", "--seed", "9"])
    assert fuzz_networks.main() == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["failures"] == [f"seed {seed}: found" for seed in range(9, 14)]
    figures = {f["name"]: f for f in found["figures"]}
    assert (figures["disagreements"]["value"], figures["disagreements"]["ok"]) == (5, False)
    assert err.count("error: seed ") == 5


@pytest.mark.parametrize(
    ("networks", "hit", "exit_code"), [(12, False, 0), (500, True, 0), (500, False, 1)]
)
def test_the_hunt_counts(
    networks: int,
    hit: bool,
    exit_code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The limits hold for many networks only, not for the one that is reproduced."""

    def fine(seed: int, tally: Tally) -> None:
        tally.networks += 1
        tally.with_region += 1
        tally.kinds.update(["conv"])
        tally.hits.update(entry.name for entry in entries()[0 if hit else 1 :])
        tally.tiles.consumers.update(CONSUMERS)
        tally.demands.update([INJECTED, AGAINST_COST])

    monkeypatch.setattr(fuzz_networks, "try_network", fine)
    monkeypatch.setattr("sys.argv", ["fuzz_networks.py", "--networks", str(networks)])
    assert fuzz_networks.main() == exit_code
    out = capsys.readouterr().out
    assert "vta.conv2d" in out and "what the networks were made of" in out
    assert "leaky" in out and AGAINST_COST in out
    monkeypatch.setattr("sys.argv", ["fuzz_networks.py", "--networks", "10", "--json"])
    assert fuzz_networks.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["operators"] == {"conv": 10}
    assert found["demands"] == {INJECTED: 10, AGAINST_COST: 10}


# ---------------------------------------------------------------- blocks of transformers
def test_blocks_take_turns_through_all_masks_norms_and_machines() -> None:
    """200 of them have every mask with every norm, at both kinds of scales."""
    blocks = [drawn_transformers.drawn(seed) for seed in range(200)]
    pairs = {(block.mask, block.norm) for block in blocks}
    assert len(pairs) == len(drawn_transformers.MASKS) * len(drawn_transformers.NORMS)
    assert {(block.machine, block.scales) for block in blocks} == {
        (machine, scales)
        for machine in drawn_transformers.MACHINES
        for scales in drawn_transformers.SCALES
    }
    assert {block.shared for block in blocks} == {1, 2, 3}


@pytest.mark.parametrize(("bad", "code"), [((), 0), ((4,), 1), (range(2, 20), 1)])
def test_blocks_are_hunted_by_seed(
    bad: tuple[int, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What stops a block is named with its seed, and the fifth failure ends the hunt."""
    tried: list[int] = []

    def block(drawn: drawn_transformers.Block) -> frozenset[str]:
        seed = drawn.seed
        tried.append(seed)
        if seed in bad:
            raise AssertionError(f"a block differs: {seed}")
        return frozenset({"vta.attention"} if seed % 2 else {"vta.dense"})

    monkeypatch.setattr(fuzz_networks, "try_block", block)
    arguments = ["--kind", "transformers", "--networks", "12", "--seed", "1", "--json"]
    monkeypatch.setattr("sys.argv", ["fuzz_networks.py", *arguments])
    assert fuzz_networks.main() == code
    found = json.loads(capsys.readouterr().out)
    failures = [seed for seed in tried if seed in bad]
    assert tried == list(range(1, 13 if len(failures) < 5 else 7))
    assert [text.split(",")[0] for text in found["failures"]] == [f"seed {s}" for s in failures]
    figures = {figure["name"]: figure["value"] for figure in found["figures"]}
    assert figures["transformer_blocks"] == len(tried) - len(failures)
    odd = [seed for seed in tried if seed % 2 and seed not in bad]
    assert figures["transformer_blocks_with_attention"] == len(odd)
