"""The match on marked composites: read as it was written, and nothing is read twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet

from vta_byoc.graph_pack import graph_pack
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.chains import Graph
from vta_byoc.partition import mark
from vta_byoc.partitioning.composite import RESULT_ATTR, composites
from vta_byoc.partitioning.kept_match import match_of
from vta_byoc.partitioning.matcher import Group, Matcher
from vta_byoc.partitioning.steps import StepReader

CONFIG = VTAConfig()


def network() -> tvm.IRModule:
    """A convolution, a depthwise one, a pooling of what a clamp gave, and an addition."""
    net = IntegerNet(x=(1, 32, 8, 8))
    first = net.conv(net.params[0], 32, name="first")
    second = net.conv(first, 32, groups=32, name="second")
    pool = net.op("nn.max_pool2d", second, pool_size=(3, 3), padding=(1, 1, 1, 1), name="pool")
    return net.module(net.residual(first, pool, name="total"))


def groups(mod: tvm.IRModule) -> Iterator[tuple[str, Group]]:
    for var, group in Matcher(Graph(mod["main"]), CONFIG).groups().items():
        yield str(var.name), group


@pytest.fixture(scope="module")
def marked() -> tvm.IRModule:
    return mark(CONFIG)(network())


def test_a_match_is_read_as_it_was_found(marked: tvm.IRModule) -> None:
    kept = {str(f.attrs[RESULT_ATTR]): f for f in composites(marked).values()}
    found = dict(groups(network()))
    assert sorted(kept) == sorted(found) and len(found) == 4
    for name, group in found.items():
        match, function = match_of(kept[name]), kept[name]
        wanted = group.match
        assert (match.entry, match.parsed.work) == (wanted.entry, wanted.parsed.work)
        assert match.parsed.layout == wanted.parsed.layout
        assert [str(x.name) for x in match.parsed.operands] == [
            str(x.name) for x in wanted.parsed.operands
        ]
        assert all(any(x.same_as(p) for p in function.params) for x in match.parsed.operands)
        assert sorted(match.parsed.constants) == sorted(wanted.parsed.constants)
        for key, array in wanted.parsed.constants.items():
            assert match.parsed.constants[key].dtype == array.dtype
            assert np.array_equal(match.parsed.constants[key], array)
        nothing = {"arrays": {}}
        assert dataclasses.replace(match.plan, **nothing) == dataclasses.replace(
            wanted.plan, **nothing
        )


def test_packing_reads_no_group_again(marked: tvm.IRModule) -> None:
    again = AssertionError("a group is read in marking alone")
    with patch.object(StepReader, "__init__", side_effect=again):
        packed = graph_pack(CONFIG)(marked)
    assert len(composites(packed)) == 4


def test_marking_is_deterministic(marked: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(marked, mark(CONFIG)(network()))
