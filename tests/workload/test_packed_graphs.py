"""Packed modules as text, `tests/golden/packed.txt`: names, layouts, folds and views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from integer_models import IntegerNet, flatten_net, island_net, residual_net, stem_net

from vta_byoc.graph_pack import graph_pack, pack_counts
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partition import mark, placements

NETS = {
    "residual": residual_net,
    "island": island_net,
    "stem": stem_net,
    "flattened": flatten_net,
    "permuted": lambda: flatten_net(how="permuted"),
}


def test_packed_modules(golden: Callable[[str, str], None]) -> None:
    texts = []
    for name, net in NETS.items():
        made = net()
        for keep in (True, False):
            mod = graph_pack(VTAConfig(), keep)(mark(VTAConfig())(made.module(made.result)))
            names = sorted(str(gv.name_hint) for gv in mod.functions)
            notes = [(p.name, p.host_bytes, p.note, round(p.cycles)) for p in placements(mod)]
            lines = [f"== {name}, packed between layers: {keep}", mod["main"].script()]
            texts += [*lines, *names, *map(str, notes), str(pack_counts(mod))]
    golden("packed.txt", "\n".join(texts) + "\n")


@pytest.mark.parametrize(("keep", "counts"), [(True, (1, 1)), (False, (3, 3))])
def test_packs_of_a_chain(keep: bool, counts: tuple[int, int]) -> None:
    """Kept packed a chain is packed once; else each layer packs its operand."""
    net = IntegerNet(x=(1, 16, 6, 6))
    value = net.params[0]
    for name in ("a", "b", "c"):
        value = net.conv(value, 16, name=name)
    mod = graph_pack(VTAConfig(), keep)(mark(VTAConfig())(net.module(value)))
    assert pack_counts(mod) == {"vta_pack": counts[0], "vta_unpack": counts[1], "vta_fold": 0}
