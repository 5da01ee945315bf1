"""Plug-ins: installed ones by entry points, others by name, and those that fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from cli_runs import cli, refused
from small_models import Net

from vta_byoc.extend import load_plugin, registered, table
from vta_byoc.hw import plugins
from vta_byoc.hw.errors import VTAError, VTAWarning

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin_hardswish"
SHAPE = (1, 16, 4, 4)
GOOD = """
from vta_byoc.extend import register_preset
from vta_byoc.hw.config import VTAConfig

register_preset("{name}", VTAConfig())
"""
TWICE = GOOD + 'register_preset("{name}", VTAConfig())\n'


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that a test loads stays loaded."""
    monkeypatch.setattr(plugins._Loaded, "names", set())
    monkeypatch.setattr(plugins._Loaded, "looked", True)
    with registered():
        yield


def package(folder: Path, name: str, text: str, value: str | None = None) -> None:
    """An installed distribution `name` of one module, with an entry point."""
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vta_byoc.plugins]\n{name} = {value or name}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, which nobody looked for yet."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins._Loaded, "looked", False)
    return tmp_path


def loaded() -> tuple[str, list[str]]:
    """The table once the installed plug-ins are loaded, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VTAWarning)
        plugins.load_installed()
    return table(), [str(each.message) for each in caught]


# ---------------------------------------------------------------- installed
def test_an_installed_plug_in_is_loaded_once(site: Path) -> None:
    package(site, "good_plugin", GOOD.format(name="good"))
    assert loaded() == ("preset good  good_plugin 1.0 (good_plugin)\n", [])
    assert loaded() == ("preset good  good_plugin 1.0 (good_plugin)\n", [])


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("import nothing_of_the_kind", None, "ModuleNotFoundError: No module named"),
        (
            TWICE.format(name="bad"),
            None,
            'preset "bad" of bad_plugin 1.0 (bad_plugin) is registered already, by bad_plugin 1.0 '
            "(bad_plugin); each name stands for one preset; give it another name",
        ),
        ("def f(): return 1 // 0", "bad_plugin:f", "ZeroDivisionError: integer division"),
        ("f = 7", "bad_plugin:f", "it is a int; a module or a function without arguments"),
    ],
)
def test_one_that_fails_takes_nothing_with_it(
    site: Path, text: str, value: str | None, why: str
) -> None:
    package(site, "bad_plugin", text, value)
    package(site, "good_plugin", GOOD.format(name="good"))
    sys.modules.pop("bad_plugin", None)
    sys.modules.pop("good_plugin", None)
    found, (warning,) = loaded()
    assert found == "preset good  good_plugin 1.0 (good_plugin)\n"
    start = f"plug-in bad_plugin 1.0 ({value or 'bad_plugin'}) cannot be loaded: {why}"
    assert warning.startswith(start)
    assert warning.endswith("; nothing of it is registered; repair or uninstall it")


def test_the_command_line_warns_and_goes_on(site: Path) -> None:
    package(site, "broken_plugin", "import nothing_of_the_kind")
    result = cli("plugins", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"registered": []}
    assert result.stderr == (
        "warning: plug-in broken_plugin 1.0 (broken_plugin) cannot be loaded: ModuleNotFoundError: "
        "No module named 'nothing_of_the_kind'; nothing of it is registered; repair or uninstall "
        "it\n"
    )


# ---------------------------------------------------------------- by name
@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_a_file_before_or_behind_the_command(before: bool, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD.format(name="mine"))
    option = ["--plugin", path]
    result = cli(*(option if before else []), "plugins", *([] if before else option))
    assert (result.exit_code, result.output) == (0, f"preset mine  {path}\n")
    assert "mine" in cli(*option, "configs").stdout


def test_asked_for_by_name_it_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = "cannot be loaded: {}; nothing of it is registered; repair or uninstall it"
    for place in (["--plugin", path, "plugins"], ["plugins", "--plugin", path]):
        assert refused(*place) == f"plug-in {path} " + text.format(
            f'there is no file "{path}"; correct the path'
        )
    path.write_text("raise OSError('no licence')")
    assert refused("--plugin", path, "plugins") == f"plug-in {path} " + text.format(
        "OSError: no licence"
    )
    assert refused("--plugin", "no such thing", "plugins") == (
        'plug-in "no such thing" is no name of a module; a module, module:function or a path that '
        "ends in .py is taken; give one of them"
    )


def test_in_python(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD.format(name="mine"))
    load_plugin(str(path))
    load_plugin(str(path))
    assert table() == f"preset mine  {path}\n"
    with pytest.raises(VTAError, match=re.escape("No module named 'no_such_module'")):
        load_plugin("no_such_module:register")


def test_nothing_is_registered() -> None:
    assert cli("plugins").output == "nothing is registered by plug-ins\n"
    assert "device sim  " in re.sub(" +", "  ", cli("plugins", "--all").output).replace(
        "device  sim", "device sim"
    )


# ---------------------------------------------------------------- the example
def run(*args: Any, folder: Path) -> str:
    """The output of the command line in a process of its own, with the packages in `folder`."""
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", "from vta_byoc.cli import main; main()", *map(str, args)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_is_short() -> None:
    lines = [line for path in EXAMPLE.iterdir() if path.is_file() for line in path.open()]
    assert len(lines) <= 80


def test_the_example_brings_gelu_to_vta(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLE, source)  # setuptools leaves build/ behind
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    net = Net(x=SHAPE)
    act = net.node("Gelu", net.conv("x", 16, 16, name="first"), name="act")
    made, model = net.model(net.conv(act, 16, 16, name="last")), tmp_path / "gelu.onnx"
    made.opset_import[0].version = 20  # the first that has Gelu
    onnx.save(onnx.shape_inference.infer_shapes(made), str(model))
    rows = {
        row["name"]: row
        for row in json.loads(run("place", model, "--json", folder=folder))["placement"]["ops"]
    }
    assert rows["act"]["device"] == "vta"
    # By itself it is a program that the search found.
    assert "a program of" not in rows["act"]["note"]
    assert run("plugins", folder=folder).endswith(" (instead of the built-in one)\n")
    assert "bit-exact" in run("run", model, "--check", folder=folder)
