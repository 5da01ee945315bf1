"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.program import Program
from vta_byoc.hw.verifier import verify

GOLDEN = Path(__file__).parent / "golden"
LONG = (
    "test_random_graphs",
    "test_random_graphs_more",
    "test_layers",
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
    "test_provenance",
    "test_torch_import",
    "test_float_islands",
    "test_exporters",
    "test_region_identity",
    "test_real_cores",
    "test_model_health",
    "test_random_demands",
)
"""Modules of tests that `make check` leaves out: whole networks, hunts, many processes; the dearest
first, so that no process is left with one of them at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files in tests/golden instead of comparing with them",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in LONG:
            item.add_marker(pytest.mark.long)
    order = {stem: place for place, stem in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.stem, -1))


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
def verified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that a test builds passes the static verifier."""
    if request.node.get_closest_marker("unverified"):
        return
    finish = ProgramBuilder.finish

    def verified_finish(builder: ProgramBuilder) -> Program:
        program = finish(builder)
        violations = verify(program)
        assert not violations, "\n".join(map(str, violations))
        return program

    monkeypatch.setattr(ProgramBuilder, "finish", verified_finish)
