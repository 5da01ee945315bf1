"""What a region counted stands under its name, in whatever order independent regions run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from draws import draws
from independent_regions import CHANNELS, SIZE, branches, late_reader
from network_runs import numpy_calibration

import vta_byoc as vta
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.sim.target import export_target, unoptimized_target
from vta_byoc.hw.trace.implementations import implementation
from vta_byoc.partitioning.placement import VTA
from vta_byoc.pipeline import OFF, ON, Compiled, compile_module, partition_for_vta
from vta_byoc.reports.placement.summary import regions_of
from vta_byoc.runtime.execute import profile
from vta_byoc.runtime.profile import RegionRun
from vta_byoc.validation.bit_exact import compare_layers
from vta_byoc.validation.divergence import compare_with_reference

RANDOM = draws(4, 8)
REORDERED = RANDOM // 4
"""Of RANDOM, at least so many execute their regions in another order than that of their numbers."""


def quantized(model: onnx.ModelProto, folder: Path) -> tvm.IRModule:
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    with numpy_calibration():
        return vta.quantize(vta.load_model(path), calibration=[image()])


def image() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)}


def compiled_from(qmod: tvm.IRModule, scopes: str) -> Compiled:
    return compile_module(qmod, target=unoptimized_target(), scopes=scopes)


def assert_its_own(run: RegionRun, compiled: Compiled) -> None:
    """The program of that name, run alone on what the region read, counts and stores the same."""
    program = compiled.programs[run.name]
    assert run.arena is not None
    inputs = {s.name: program.view(run.arena, s.name) for s in program.of_kind("input")}
    alone = simulator.run(program, inputs)
    assert alone.counters == run.counters
    np.testing.assert_array_equal(alone.arena, run.arena)


def test_random_networks_of_independent_regions(tmp_path: Path) -> None:
    """Half of them with every layer as a region of its own."""
    reordered = 0
    for seed in range(RANDOM):
        scopes = (ON, OFF)[seed % 2]
        compiled = compiled_from(quantized(branches(seed), tmp_path), scopes)
        runs = profile(compiled.exe, image(), arenas=True).regions
        assert sorted(run.name for run in runs) == sorted(compiled.programs)
        for run in runs:
            assert_its_own(run, compiled)
        reordered += [run.name for run in runs] != list(compiled.programs)
    print(f"{RANDOM} networks, {reordered} reordered")
    assert reordered >= REORDERED


@pytest.fixture(scope="module", params=[ON, OFF])
def reordered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[tvm.IRModule, Compiled]:
    """A quantized module and what it became: its regions run in another order."""
    seed = {ON: 1, OFF: 5}[request.param]
    qmod = quantized(branches(seed), tmp_path_factory.mktemp("net"))
    compiled = compiled_from(qmod, request.param)
    names = [run.name for run in profile(compiled.exe, image()).regions]
    assert names != list(compiled.programs)
    return qmod, compiled


def test_reordered_regions_are_compared_by_name(reordered: tuple[tvm.IRModule, Compiled]) -> None:
    qmod, compiled = reordered
    checks = compare_layers(qmod, compiled, image())
    assert checks and all(check.equal for check in checks)
    for check in checks:
        assert check.name in {s.name for s in compiled.programs[check.where].symbols}
    assert compare_with_reference(qmod, compiled, image(), implementation("sim")) is None


def test_a_late_reader_changes_nothing(tmp_path: Path) -> None:
    qmod = quantized(late_reader(), tmp_path)
    compiled = compiled_from(qmod, ON)
    assert all(check.equal for check in compare_layers(qmod, compiled, image()))


def test_the_regions_of_a_placement_are_those_of_the_programs(
    reordered: tuple[tvm.IRModule, Compiled],
) -> None:
    qmod, compiled = reordered
    scopes = OFF if len(compiled.programs) > 3 else ON
    listed = regions_of(partition_for_vta(qmod, scopes=scopes))
    assert list(listed) == list(compiled.programs)
    for name, program in compiled.programs.items():
        sources = {layer.name.split("__")[0] for layer in program.layers}
        assert sources <= set(listed[name])
    placed = {op.name for op in compiled.placement if op.device == VTA}
    assert placed >= {op for ops in listed.values() for op in ops}


def test_a_loaded_library_names_its_regions_the_same(tmp_path: Path) -> None:
    qmod = quantized(branches(1), tmp_path)
    compiled = compile_module(qmod, target=export_target())
    path = tmp_path / "net.so"
    compiled.exe.export_library(str(path))
    here = profile(compiled.exe, image())
    loaded = profile(tvm.runtime.load_module(str(path)), image())
    assert [run.name for run in here.regions] != list(compiled.programs)
    assert loaded.by_region == here.by_region
