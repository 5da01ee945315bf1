"""Random networks on every geometry: partition, pack, compile, run; equal to the numpy reference.

Every program is verified (conftest). The host's operators run in numpy, regions on the simulator.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from dialect_numpy import run as reference
from layer_runs import machines, run_module
from random_graphs import GraphMaker
from tvm.ir import Tuple

from vta_byoc.partition import TABLE

GRAPHS = 80
CHUNK = 10
MACHINES = machines()
HITS: Counter[str] = Counter()


def equal_everywhere(seed: int) -> bool:
    """Whether the network of ``seed`` has a region; its results must be the reference's."""
    maker = GraphMaker(seed)
    mod = maker.build()
    inputs = maker.net.inputs(seed)
    config = list(MACHINES.values())[seed % len(MACHINES)]
    run = run_module(mod, config, inputs)
    result = reference(mod, *inputs)["result"]
    wanted = result if isinstance(mod["main"].body.body, Tuple) else [result]
    assert len(run.outputs) == len(wanted)
    for got, want in zip(run.outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}: {maker.made}")
    reasons = (p.reason.split(";")[0] for p in run.placement.values() if p.device == "vta")
    HITS.update(reason.removeprefix("pattern ") for reason in reasons)
    return bool(run.programs)


@pytest.mark.parametrize("start", range(0, GRAPHS, CHUNK))
def test_random_networks_equal_the_reference(start: int) -> None:
    regions = [equal_everywhere(seed) for seed in range(start, start + CHUNK)]
    assert sum(regions) >= CHUNK - 1, "nearly every network has work for VTA"


def test_the_table_was_used() -> None:
    if not HITS:
        pytest.skip("the networks ran in another process")
    print(dict(HITS.most_common()))
    missing = {e.name for e in TABLE} - set(HITS) - {"vta.conv1d", "vta.dense"}
    assert not missing, "conv1d and dense have tests of their own; all others occur here"
