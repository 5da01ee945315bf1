"""Shared fixtures."""

from __future__ import annotations

import functools
import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.cache import CACHE_VARIABLE
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import kept_code
from vta_byoc.hw.sim.target import exact_target, native_target, unoptimized_target
from vta_byoc.hw.verify.verifier import verify
from vta_byoc.ir.float_modules import float_operators
from vta_byoc.ir.host_loops import TIR_PIPELINE, without_asserts
from vta_byoc.ir.optimization import PLAIN
from vta_byoc.ir.stage import checked_forms
from vta_byoc.passes import kept_programs
from vta_byoc.passes.lower_regions import unchecked_program
from vta_byoc.strategies.te import kept_choices
from vta_byoc.strategies.te.timed import cycles_alone

GOLDEN = Path(__file__).parent / "golden"
KEPT = Path(__file__).resolve().parents[1] / "build" / "test-cache"
MOST_MACHINES = 512
"""Machines for which choices and interpreters are kept: the tests have more than users."""
LONG = (
    "test_random_graphs",
    "test_random_graphs_more",
    "test_drawn_transformers",
    "test_layers",
    "test_legal_schedules",
    "test_layers_geometries",
    "test_conv_shapes",
    "test_simulators",
    "test_fuzz",
    "test_model_resnet18",
    "test_codegen_programs",
    "test_packaging",
    "test_light_models",
    "test_quantize_options",
    "test_resnet18",
    "test_importers",
    "test_model_zoo",
    "test_zoo",
    "test_root_cause",
    "test_torch_import",
    "test_float_islands",
    "test_exporters",
    "test_region_identity",
    "test_real_cores",
    "test_model_health",
    "test_random_demands",
    "test_generated_characters",
)
"""End to end: whole networks, hunts, many processes; the dearest first, so that no process is left
with one of them at the end."""
UNIT = frozenset(
    {
        "test_arrays",
        "test_boundary",
        "test_calibrate",
        "test_calibrators",
        "test_channels_first",
        "test_check",
        "test_cli_calibration",
        "test_cli_errors",
        "test_cli_programs",
        "test_cli_scopes",
        "test_codegen_refusals",
        "test_codegen_streams",
        "test_codegen_structure",
        "test_codegen_tokens",
        "test_codegen_transfer",
        "test_codegen_uops",
        "test_codegen_values",
        "test_codegen_views",
        "test_config",
        "test_damaged_files",
        "test_digits",
        "test_dma",
        "test_documented_figures",
        "test_executable",
        "test_fixed_point",
        "test_float_modules",
        "test_frontend",
        "test_html_report",
        "test_hunted",
        "test_im2col",
        "test_image_folder",
        "test_importer_refusals",
        "test_index_bounds",
        "test_isa",
        "test_json_object",
        "test_keep_float",
        "test_labelled",
        "test_layer_benchmark",
        "test_layer_factor",
        "test_layer_facts",
        "test_lint",
        "test_rooms",
        "test_sizes",
        "test_memory_facts",
        "test_normalize_axes",
        "test_onnx_static",
        "test_operator_work",
        "test_packed_graphs",
        "test_packing",
        "test_partition",
        "test_patterns_graph",
        "test_patterns_steps",
        "test_place",
        "test_program",
        "test_program_file",
        "test_report",
        "test_scope_errors",
        "test_scope_pass",
        "test_simulator_faults",
        "test_trace",
        "test_transfer_exact",
        "test_vdevice",
        "test_workloads",
    }
)
"""What `make check` runs: the linters, and modules that need little time for what they find. Those
in neither table test components: one pass, one strategy, one command."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files in tests/golden instead of comparing with them",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m unit` the other modules are not imported: that takes as long as many tests."""
    stem = collection_path.stem
    if config.getoption("markexpr") != "unit" or not stem.startswith("test_"):
        return None
    return True if collection_path.suffix == ".py" and stem not in UNIT else None


def pytest_configure() -> None:
    """Interpreters are built, and tiles and programs of functions searched for, once for all runs.

    Entries are named by the sources that they were made by: what a change may touch is made anew.
    """
    os.environ.setdefault(CACHE_VARIABLE, str(KEPT))
    kept_choices.MOST_FILES = kept_code.MOST_ENTRIES = MOST_MACHINES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in LONG:
            item.add_marker(pytest.mark.long)
        elif item.path.stem in UNIT:
            item.add_marker(pytest.mark.unit)
    order = {**dict.fromkeys(UNIT, -2), **{stem: place for place, stem in enumerate(LONG)}}
    order["test_lint"] = -3  # half of the time of the unit tests, in one process
    items.sort(key=lambda item: order.get(item.path.stem, -1))


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not look at it again after every few tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` must equal the file tests/golden/`name`."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}; run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(autouse=True)
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of one test is kept for another, which may change what compiles it."""
    monkeypatch.setattr(kept_programs, "WORTH_SECONDS", math.inf)


@pytest.fixture(autouse=True, scope="session")
def checked() -> Iterator[None]:
    """Every stage that a test runs gives a module of the form that it says."""
    with checked_forms():
        yield


@pytest.fixture(autouse=True)
def verified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that a test builds passes the static verifier.

    `compile_region` asks it itself (test_arena.py) of the better of what `unchecked_program` wrote,
    and a second time would find nothing else. What a search only times, `cycles_alone`, is verified
    when it is chosen and compiled.
    """
    if request.node.get_closest_marker("unverified"):
        return
    finish = ProgramBuilder.finish

    def verified_finish(builder: ProgramBuilder) -> Program:
        program = finish(builder)
        if sys._getframe(1).f_code in (unchecked_program.__code__, cycles_alone.__code__):
            return program
        violations = verify(program)
        assert not violations, "\n".join(map(str, violations))
        return program

    monkeypatch.setattr(ProgramBuilder, "finish", verified_finish)


@functools.cache
def host_targets() -> tuple[str, tvm.target.Target]:
    """What executables are built for here, as text; the same with LLVM's optimizations off."""
    return str(exact_target(native_target())), exact_target(unoptimized_target())


@pytest.fixture(autouse=True)
def quick_hosts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executables are built without LLVM's optimizations and asserts where no bit depends on these.

    They take half of the time of a small build.  Modules with other float operators than those of
    PLAIN, and those of LONG, whole networks, are built as users build them.
    """
    if request.path.stem in LONG:
        return
    build, (slow, quick) = relax.build, host_targets()

    def built(mod: tvm.IRModule, target: Any = None, *args: Any, **options: Any) -> Any:
        ours = options.get("tir_pipeline") is TIR_PIPELINE and "relax_pipeline" in options
        whole = any(var.name_hint == "main" for var in mod.get_global_vars())  # no part of a model
        watched = tvm.transform.PassContext.current().instruments  # of a test, by this very context
        plain = whole and all(op in PLAIN for op in float_operators(mod))
        if watched or not ours or not plain or str(target) != slow:
            return build(mod, target, *args, **options)
        with without_asserts():
            return build(mod, quick, *args, **options)

    monkeypatch.setattr(relax, "build", built)


@pytest.fixture
def quantized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take the quantized form of a model that an earlier one made."""
    from cli_runs import quantize_once

    from vta_byoc.cli import commands

    monkeypatch.setattr(commands, "quantize", quantize_once)
