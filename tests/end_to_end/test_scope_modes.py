"""Scope modes: equal results, what each one moves, equal instructions, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from cli_runs import cli, quantize_once, refused, small_model
from dialect_numpy import run as reference
from integer_models import IntegerNet, residual_net
from layer_runs import Run, machines, run_module
from network_hunt import MACHINES, way_of
from network_runs import numpy_calibration, short_and_dram, short_and_off
from scope_networks import NETS, concat_net, crossed_island_net, mobilenet, resnet
from small_models import Net
from tvm import relax

import vta_byoc as vta
from benchmarks.scopes import FLOOR_BYTES, PUBLISHED_BYTES, figures_of, host_copies
from vta_byoc.base.rewrites import without
from vta_byoc.cli import commands, scope_mode
from vta_byoc.graph_pack import pack_counts
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import count_stream
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.records import text_of
from vta_byoc.ir.reference import build_reference
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.pipeline import (
    DRAM_ONLY,
    OFF,
    ON,
    SCOPE_MODES,
    build,
    compile_module,
    partition_for_vta,
    vta_pipeline,
)
from vta_byoc.reports.placement.summary import host_copies as written_by_host
from vta_byoc.reports.placement.summary import regions_of
from vta_byoc.runtime.execute import profile, run_vm
from vta_byoc.strategy import STRATEGY_ATTR, WORKLOAD_ATTR

CONFIG = VTAConfig()
LOADS = ("inp_load_nbytes", "wgt_load_nbytes", "acc_load_nbytes", "uop_load_nbytes")
WORK = ("gemm_counter", "alu_counter", "out_store_nbytes")


def quantized(model: onnx.ModelProto, path: Path) -> tvm.IRModule:
    onnx.save(model, str(path))
    mod = vta.load_model(path)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    with numpy_calibration():
        return vta.quantize(mod, calibration=[[rng.standard_normal(shape, "float32")]])


# ---------------------------------------------------------------- equal results
ON_ANOTHER_MACHINE = ("stem", "concat", "int32", "crossed island")


@pytest.mark.parametrize(
    ("name", "machine"),
    [*((name, "1x16") for name in NETS), *((name, "4x8") for name in ON_ANOTHER_MACHINE)],
)
def test_every_mode_computes_the_same(name: str, machine: str) -> None:
    net, config = NETS[name](), machines()[machine]
    mod, inputs = net.module(net.result), net.inputs()
    want = reference(mod, *inputs)["result"]
    for mode in SCOPE_MODES:
        run = run_module(mod, config, inputs, planned=False, scopes=mode)
        np.testing.assert_array_equal(run.outputs[0], want, err_msg=mode)


def test_a_quantized_network_with_a_float_island(tmp_path: Path) -> None:
    """The public way: LLVM on the host, fused copies, the Relax VM."""
    net = Net(data=(1, 16, 8, 8))
    a = net.node("Relu", net.conv("data", 16, 16, name="first"))
    b = net.conv(a, 16, 32, name="second")
    island = net.node("Softmax", b, name="island", axis=1)
    c = net.conv(island, 32, 16, name="third")
    qmod = quantized(net.model(net.node("Add", c, a, name="join")), tmp_path / "net.onnx")
    x = [np.random.default_rng(2).standard_normal((1, 16, 8, 8), "float32")]
    want = run_vm(relax.VirtualMachine(build_reference(qmod), tvm.cpu()), x)
    regions = {}
    for mode in SCOPE_MODES:
        compiled = compile_module(qmod, CONFIG, scopes=mode)
        run = profile(compiled.exe, x)
        np.testing.assert_array_equal(run.outputs[0], want[0], err_msg=mode)
        regions[mode] = len(run.regions)
    assert regions == {ON: 2, DRAM_ONLY: 2, OFF: 4}


# ---------------------------------------------------------------- what moves
def partitioned(net: IntegerNet, mode: str) -> tvm.IRModule:
    return partition_for_vta(net.module(net.result), CONFIG, scopes=mode)


COUNTS = {
    # regions, packs, unpacks and folds with scopes off; the same with DRAM scopes only
    "residual": ((3, 4, 3, 0), (1, 1, 1, 0)),
    "island": ((2, 2, 2, 0), (2, 2, 2, 0)),
    "crossed island": ((4, 5, 4, 0), (2, 2, 2, 0)),
    "diamond": ((4, 5, 4, 0), (1, 1, 1, 0)),
    "doubled": ((3, 3, 3, 0), (1, 1, 1, 0)),
    "concat": ((5, 6, 5, 0), (1, 1, 1, 0)),
    "stem": ((4, 3, 4, 2), (1, 0, 1, 1)),
    "narrow": ((3, 4, 3, 0), (1, 1, 1, 0)),
    "flattened": ((2, 2, 2, 0), (1, 1, 1, 0)),
    "int32": ((2, 2, 2, 0), (1, 1, 1, 0)),
}


@pytest.mark.parametrize("name", NETS)
def test_regions_and_copies(name: str) -> None:
    """Kept packed: one pack at each entry, one unpack at each exit.  Off: one for each use."""
    off, dram = COUNTS[name]
    for mode, wanted in ((OFF, off), (DRAM_ONLY, dram), (ON, dram)):
        mod = partitioned(NETS[name](), mode)
        assert (len(regions_of(mod)), *pack_counts(mod).values()) == wanted, mode


@pytest.mark.parametrize("name", ["diamond", "residual", "concat"])
def test_without_scopes_no_region_has_two_composites(name: str) -> None:
    """Also where one reads two results of others, or two read one."""
    mod = partitioned(NETS[name](), OFF)
    assert {len(Region.of(f).steps) for f in region_functions(mod).values()} == {1}


def test_what_goes_around_an_island_stays_packed() -> None:
    """``middle`` crosses to the host and ``size`` comes back; ``first`` does neither."""
    mod = partitioned(crossed_island_net(), DRAM_ONLY)
    copies = [(c.kind, sorted(c.layers)) for c in host_copies(mod)]
    assert copies == [
        ("pack", ["first"]),
        ("unpack", ["middle"]),
        ("pack", ["last"]),
        ("unpack", ["join"]),
    ]
    off = [(c.kind, c.layers[0]) for c in host_copies(partitioned(crossed_island_net(), OFF))]
    assert off.count(("pack", "join")) == 2 and off.count(("unpack", "first")) == 1


@pytest.mark.parametrize("mode", [DRAM_ONLY, OFF])
@pytest.mark.parametrize("name", ["stem", "crossed island", "int32"])
def test_the_benchmark_counts_what_the_host_writes_and_reads(name: str, mode: str) -> None:
    mod = partitioned(NETS[name](), mode)
    written = {f"{kind}s": 0 for kind in ("pack", "unpack", "fold")}
    for copy in host_copies(mod):
        written[f"{copy.kind}s"] += copy.plain if copy.kind == "unpack" else copy.packed
        assert copy.nbytes == copy.plain + copy.packed
        assert copy.least in (copy.packed, copy.nbytes)
    assert written == {kind: c.nbytes for kind, c in written_by_host(mod).items()}


def test_a_plain_tensor_that_only_copies_touch_is_not_needed() -> None:
    """``first`` is unpacked to be packed for two layers; ``middle`` is read by the host."""
    copies = host_copies(partitioned(crossed_island_net(), OFF))
    between = {(c.kind, c.layers[0], c.between) for c in copies}
    assert ("unpack", "first", True) in between and ("pack", "middle", True) in between
    assert ("unpack", "middle", False) in between and ("pack", "last", False) in between
    assert ("pack", "first", False) in between and ("unpack", "join", False) in between


@pytest.mark.parametrize(
    ("name", "moved", "ok"),
    [
        ("resnet18", (17_000_000, 40_000_000), True),
        ("resnet18", (17_000_001, 40_000_000), False),
        ("mobilenet_v2", (99, 100), True),
        ("mobilenet_v2", (100, 100), False),
    ],
)
def test_limits_of_the_benchmark(name: str, moved: tuple[int, int], ok: bool) -> None:
    """ResNet-18 has a number, of its layers alone; the others must move less than without."""
    own, other = ("layers", "all") if name == "resnet18" else ("all", "layers")
    modes = {
        mode: {
            own: {"vta": nbytes - 10, "host": 10, "host_least": 4},
            other: {"vta": 1, "host": 0, "host_least": 0},
            "tensors": 5,
            "different": 0,
            **dict.fromkeys(("regions", "cycles", "peak", "apart"), 1),
        }
        for mode, nbytes in zip(SCOPE_MODES, (moved[0], 50, moved[1]), strict=True)
    }
    figures = {f.name: f for f in figures_of({"name": name, "modes": modes})}
    on, off = (figures[f"{name}_dram_bytes_{mode}"] for mode in ("on", "off"))
    beside = {"resnet18": (PUBLISHED_BYTES, FLOOR_BYTES)}
    baseline, bound = beside.get(name, (moved[1], moved[0] - 6))
    assert (on.value, on.baseline, on.bound, on.ok) == (moved[0], baseline, bound, ok)
    assert (off.value, off.bound, off.ok) == (moved[1], moved[1] - 6, None)
    assert figures[f"{name}_dram_bytes_dram_only"].value == 50
    assert figures[f"{name}_off_tensors_different"].ok is True
    modes[OFF]["different"] = 1
    wrong = {f.name: f for f in figures_of({"name": name, "modes": modes})}
    assert wrong[f"{name}_off_tensors_different"].ok is False


# ---------------------------------------------------------------- equal instructions
def computes(run: Run) -> Counter[tuple[str, str]]:
    """How often each workload is computed, and how."""
    steps = [s for f in region_functions(run.module).values() for s in Region.of(f).steps]
    attrs = [run.module[c].attrs for step in steps for c in step.computes]
    return Counter((str(a[STRATEGY_ATTR]), text_of(a[WORKLOAD_ATTR])) for a in attrs)


def counters(run: Run) -> Counter[str]:
    total: Counter[str] = Counter()
    for program in run.programs.values():
        total.update(count_stream(program.config, program.insns))
    return total


def assert_same_instructions(mod: tvm.IRModule, inputs: list[np.ndarray], config: Any) -> None:
    """The modes' layers are computed alike; a region of its own may have to load again what the
    layers of one region share, and nothing else differs.  Between the layers of a region there are
    early loads, which may load a micro-op more."""
    with without(["early_loads"]):
        dram, off = (
            run_module(mod, config, inputs, planned=False, scopes=m) for m in (DRAM_ONLY, OFF)
        )
    np.testing.assert_array_equal(dram.outputs[0], off.outputs[0])
    assert computes(dram) == computes(off)
    kept, alone = counters(dram), counters(off)
    assert {name: kept[name] for name in WORK} == {name: alone[name] for name in WORK}
    more = {name: (kept[name], alone[name]) for name in LOADS if kept[name] > alone[name]}
    assert not more
    assert {n: p.note for n, p in dram.placement.items()} == {
        n: p.note for n, p in off.placement.items()
    }


@pytest.mark.parametrize(("model", "preset"), [(resnet, "pynq"), (mobilenet, "sim")])
def test_layers_are_the_same_without_scopes(
    model: Callable[[], onnx.ModelProto], preset: str, tmp_path: Path
) -> None:
    made = model()
    qmod = quantized(made, tmp_path / "net.onnx")
    shape = [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape, "float32")
    assert_same_instructions(qmod, [x], VTAConfig.preset(preset))


@pytest.mark.parametrize("name", ["stem", "narrow", "flattened", "int32", "doubled"])
def test_plans_are_the_same_without_scopes(name: str) -> None:
    """What was packed before is not folded, and a flattened plane is not packed anew."""
    net = NETS[name]()
    assert_same_instructions(net.module(net.result), net.inputs(), CONFIG)


def test_only_inside_a_region_are_parts_stored_in_place() -> None:
    net = concat_net()
    mod, inputs = net.module(net.result), net.inputs()
    with without(["routed_channels"]):  # of packed tensors alone
        stored = {
            mode: counters(run_module(mod, CONFIG, inputs, planned=False, scopes=mode))
            for mode in (DRAM_ONLY, OFF)
        }
    joined = 48 * 6 * 6
    more = stored[OFF]["out_store_nbytes"] - stored[DRAM_ONLY]["out_store_nbytes"]
    assert more == joined


# ---------------------------------------------------------------- what is refused
UNKNOWN = "scopes 'chip' is no scope mode; known: on, dram, off; choose one"


@pytest.mark.parametrize("call", [partition_for_vta, compile_module, build])
def test_an_unknown_mode_is_refused(call: Callable[..., Any]) -> None:
    net = residual_net()
    with pytest.raises(VTAError) as error:
        call(net.module(net.result), CONFIG, scopes="chip")
    assert str(error.value) == UNKNOWN


def test_the_pipeline_refuses_at_once_and_takes_a_mode() -> None:
    with pytest.raises(VTAError) as error:
        vta_pipeline(CONFIG, scopes="chip")
    assert str(error.value) == UNKNOWN
    net = residual_net()
    pipeline = relax.get_pipeline("vta", config=CONFIG, scopes=OFF)
    exe = relax.build(net.module(net.result), "llvm", relax_pipeline=pipeline)
    assert len(profile(exe, net.inputs()).regions) == 3


@pytest.mark.parametrize("mode", [DRAM_ONLY, OFF])
def test_demands_need_the_mode_that_reads_them(mode: str) -> None:
    net = residual_net()
    demands = {("join", "conv_b"): "local.acc_buffer"}
    with pytest.raises(VTAError) as error:
        partition_for_vta(net.module(net.result), CONFIG, scopes=mode, demands=demands)
    assert str(error.value) == (
        f"a demand of 'join' for 'conv_b' with scopes {mode!r}; demands are read with scopes "
        "'on'; leave one of the two out"
    )


def test_a_partitioned_module_is_taken_as_it_is() -> None:
    net = residual_net()
    mod = partition_for_vta(net.module(net.result), CONFIG, scopes=OFF)
    assert len(compile_module(mod, CONFIG, "null").programs) == 3


# ---------------------------------------------------------------- the command line
@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commands, "quantize", quantize_once)
    return small_model(tmp_path / "small.onnx")


def test_the_option_has_the_modes() -> None:
    assert scope_mode.MODES == SCOPE_MODES


@pytest.mark.usefixtures("quantized_once")
def test_commands_take_a_mode(model: Path, tmp_path: Path) -> None:
    regions = {}
    for mode in SCOPE_MODES:
        placed = cli("place", model, "--scopes", mode, "--json")
        regions[mode] = len(json.loads(placed.stdout)["regions"])
    assert regions == {ON: 1, DRAM_ONLY: 1, OFF: 3}
    ran = cli("run", model, "--scopes", "off", "--check", "--json")
    assert json.loads(ran.stdout)["bit_exact"] is True
    written = cli("programs", model, "--scopes", "off", "-o", tmp_path).stdout
    assert [line.split(": ")[1].split(",")[0] for line in written.splitlines()] == ["1 layer"] * 3
    for command in (["disasm"], ["report", "-o", tmp_path / "r.html"], ["diff"], ["verify"]):
        result = cli(command[0], model, "--scopes", "off", *command[1:])
        assert result.exit_code == 0, result.output


def test_tensors_between_layers_are_global_without_scopes(model: Path) -> None:
    found = json.loads(cli("scopes", model, "--scopes", "off", "--json").stdout)
    host = {t["tensor"]: t["scope"] for t in found["tensors"] if t["part"] == "host"}
    assert {"first__unpacked", "second__unpacked", "join__unpacked"} < set(host)
    assert set(host.values()) == {"global"}
    inside = {(t["part"], t["kind"]) for t in found["tensors"] if t["part"] != "host"}
    kinds = ("input", "constant", "output")
    assert inside == {(f"region{i}", kind) for i in range(3) for kind in kinds}


def test_an_unknown_mode_is_a_usage_error(model: Path) -> None:
    line = refused("run", model, "--scopes", "chip")
    assert "'chip' is not one of 'on', 'dram', 'off'" in line and "--help" in line


# ---------------------------------------------------------------- random networks
@pytest.mark.parametrize("way", [short_and_dram, short_and_off])
def test_random_networks_meet_the_mode_on_every_machine(way: Any) -> None:
    """Those of test_random_graphs.py and test_random_graphs_more.py."""
    assert {seed % len(MACHINES) for seed in range(500) if way_of(seed) is way} == set(
        range(len(MACHINES))
    )
