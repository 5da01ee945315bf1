"""Shared fixtures."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vta_byoc.hw.cache import CACHE_VARIABLE

GOLDEN = Path(__file__).parent / "golden"
KEPT = Path(__file__).resolve().parents[1] / "build" / "test-cache"
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


def pytest_configure(config: pytest.Config) -> None:
    """Interpreters are built, and tiles and programs of functions searched for, once for all runs.

    Entries are named by the sources that they were made by: what a change may touch is made anew.
    """
    os.environ.setdefault(CACHE_VARIABLE, str(KEPT))
    if config.getoption("dist", "no") == "no":  # tests run here, not in processes of this one
        config.pluginmanager.import_plugin("compiling")


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
