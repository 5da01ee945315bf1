"""What is installed, how it is found, and what its import accepts."""

from __future__ import annotations

import configparser
import email
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from without_torch import WITHOUT_TORCH

import vta_byoc
from vta_byoc.base import pins
from vta_byoc.hw.errors import VTAError

ROOT = Path(__file__).resolve().parents[2]
PACKED = r"vta_byoc/(.+\.py|py\.typed|reports/templates/.+\.(html|css|js)|runtime/c/.+)"
GOOD = {"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.14.post1"}
FIX = (
    'run: python -m pip install "apache-tvm[rpc]>=0.27,<0.28" '
    '"apache-tvm-ffi>=0.1.14.post0,<0.1.15"'
)


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def python(code: str, cwd: Path, *args: str) -> str:
    # What TVM's autoloader swallows into a warning must not pass unseen.
    return run(sys.executable, "-W", "error:Failed to autoload", "-c", code, *args, cwd=cwd)


FIRST = (
    "import vta_byoc.quantize",
    "import vta_byoc.pipeline, vta_byoc.quantize",
    "from vta_byoc.quantize import quantize",
    "from vta_byoc import quantize; import vta_byoc.quantize",
    "import vta_byoc; vta_byoc.quantize; import vta_byoc.quantize",
    "import vta_byoc",
)
IS_THE_FUNCTION = """
import types, vta_byoc as vta
from vta_byoc.quantize import quantize
assert isinstance(quantize, types.FunctionType), quantize
print(vta.quantize is quantize)
"""
REGISTERED = """
import sys, tvm
from tvm.relax.pipeline import PIPELINE_MAP
print(PIPELINE_MAP["vta"].__module__)
print(*sorted(m for m in sys.modules if m.startswith("vta_byoc")))
"""
LOADED_TWICE = """
from vta_byoc._autoload import autoload, vta_pipeline
autoload(); autoload()
print(tvm.relax.pipeline.PIPELINE_MAP["vta"] is vta_pipeline)
"""
A_PASS = """
from tvm import relax, transform
print(isinstance(relax.get_pipeline("vta"), transform.Pass))
"""
AUTOLOAD = REGISTERED + LOADED_TWICE + A_PASS
"""What has to be seen first comes first: each process takes two seconds to import TVM."""
SNIPPETS = (*(first + IS_THE_FUNCTION for first in FIRST), AUTOLOAD)
EACH_FORKED = WITHOUT_TORCH + """
import json, os, sys, tvm_ffi
assert not {"tvm", "vta_byoc"} & set(sys.modules)
for code in json.loads(sys.argv[1]):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        exec(code, {})
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, code
    print("----")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each of SNIPPETS prints, in processes that have imported neither TVM nor this package.

    They are forked from one that has imported what TVM needs: torch alone takes two seconds.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    texts = python(EACH_FORKED, folder, json.dumps(SNIPPETS)).split("----\n")
    return dict(zip(SNIPPETS, texts, strict=False))


def repository_files() -> list[Path]:
    """Files that are committed or would be."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: setuptools would leave build/ behind, and pack what an older one holds.
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in repository_files():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(target))
    run(sys.executable, "-m", "pip", "wheel", *options, str(source))
    (built,) = target.iterdir()
    return built


class TestWheel:
    def test_is_pure_python(self, wheel: Path) -> None:
        assert wheel.name == f"vta_byoc-{vta_byoc.__version__}-py3-none-any.whl"

    def test_holds_every_source_file_and_nothing_else(self, wheel: Path) -> None:
        sources = {path.relative_to(ROOT).as_posix() for path in repository_files()}
        wanted = {name for name in sources if re.fullmatch(PACKED, name)}
        wanted |= {
            f"vta_byoc/{name}"
            for name in sources
            if re.fullmatch(r"hw/(.+\.py|presets/.+\.json|rtl/.+\.cpp)", name)
        }
        packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        assert packed == wanted

    def test_entry_points(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith("/entry_points.txt"))
            parser = configparser.ConfigParser()
            parser.read_string(archive.read(name).decode())
        assert {section: dict(parser[section]) for section in parser.sections()} == {
            "console_scripts": {"vta-byoc": "vta_byoc.cli:main"},
            "tvm.backends": {"vta": "vta_byoc._autoload:autoload"},
        }

    def test_metadata(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
            metadata = email.message_from_bytes(archive.read(name))
        required = {Requirement(text) for text in metadata.get_all("Requires-Dist", [])}
        assert {Requirement(text) for text in pins.REQUIREMENTS} <= required
        assert SpecifierSet(metadata["Requires-Python"]) == SpecifierSet(">=3.10,<3.14")
        assert metadata.get_all("Provides-Extra") == [
            *("dev", "dask", "docs", "images", "libraries", "mutants", "rtl", "tflite", "torch")
        ]


@pytest.fixture(scope="module")
def folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder but for the unpacked wheel and a model."""
    made = tmp_path_factory.mktemp("empty")
    zipfile.ZipFile(wheel).extractall(made / "wheel")
    shutil.copy(ROOT / "tests" / "fixtures" / "tflite" / "net.tflite", made)
    return made


class TestFromAnEmptyFolder:
    """The wheel alone, unpacked, first on the path: nothing of the repository is needed."""

    def vta(self, folder: Path, *args: str) -> str:
        code = (
            "import sys; sys.path.insert(0, 'wheel'); import vta_byoc.cli as cli; "
            "assert 'wheel' in cli.__file__; cli.main()"
        )
        return run(sys.executable, "-c", code, *args, cwd=folder)

    def test_a_model_runs_and_its_library_runs(self, folder: Path) -> None:
        assert "bit-exact: 1 output" in self.vta(folder, "run", "net.tflite", "--check")
        assert "net.so written" in self.vta(folder, "compile", "net.tflite", "-o", "net.so")
        assert "machine: sim, 1x16" in self.vta(folder, "inspect", "net.so")
        assert "regions that ran: 1" in self.vta(folder, "run", "net.so")

    def test_a_bundle_runs_in_c(self, folder: Path) -> None:
        for tool in ("make", "cc"):
            if shutil.which(tool) is None:
                pytest.skip(f"no {tool} on PATH")
        command = ("compile", "net.tflite", "--format", "bundle", "-o", "bundle")
        assert "bundle written: 6 files" in self.vta(folder, *command)
        shutil.copytree(folder / "wheel" / "vta_byoc" / "runtime" / "c", folder / "c")
        printed = run("make", "-s", "-C", "c", "check", "BUNDLE=../bundle", cwd=folder)
        assert printed.startswith('input "x" int8 1x16x16x3, 768 bytes\n')


class TestPins:
    def test_the_installed_releases_are_accepted(self) -> None:
        pins.check_pins()
        assert pins.mismatch(pins.installed_versions()) is None

    @pytest.mark.parametrize("tvm", ["0.27", "0.27.0", "0.27.0.post1", "0.27.3", "0.27.1.dev0"])
    @pytest.mark.parametrize("ffi", ["0.1.14.post0", "0.1.14.post1"])
    def test_accepts(self, tvm: str, ffi: str) -> None:
        assert pins.mismatch({"apache-tvm": tvm, "apache-tvm-ffi": ffi}) is None

    @pytest.mark.parametrize("found", ["0.26.1", "0.27.dev3", "0.28.dev5", "0.28.0", "weird"])
    def test_refuses_another_tvm(self, found: str) -> None:
        assert pins.mismatch({**GOOD, "apache-tvm": found}) == (
            f"apache-tvm {found} is installed; vta_byoc needs apache-tvm>=0.27,<0.28; {FIX}"
        )

    @pytest.mark.parametrize("found", ["0.1.13", "0.1.14", "0.1.15.dev0", "0.1.15.post2", "0.2.0"])
    def test_refuses_another_ffi(self, found: str) -> None:
        assert pins.mismatch({**GOOD, "apache-tvm-ffi": found}) == (
            f"apache-tvm-ffi {found} is installed; "
            f"vta_byoc needs apache-tvm-ffi>=0.1.14.post0,<0.1.15; {FIX}"
        )

    @pytest.mark.parametrize("versions", [{}, {**GOOD, "apache-tvm": None}])
    def test_refuses_none(self, versions: dict[str, str | None]) -> None:
        with pytest.raises(ImportError) as raised:
            pins.check_pins(versions)
        assert str(raised.value) == (
            f"apache-tvm is not installed; vta_byoc needs apache-tvm>=0.27,<0.28; {FIX}"
        )

    def test_the_package_does_not_import_with_a_bad_release(self, tmp_path: Path) -> None:
        # A distribution found first on sys.path stands in for the wrong release.
        info = tmp_path / "apache_tvm_ffi-0.1.15.post2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: apache-tvm-ffi\nVersion: 0.1.15.post2\n")
        code = "try: import vta_byoc\nexcept ImportError as error: print(error)"
        assert python(f"import sys; sys.path.insert(0, '.')\n{code}", tmp_path) == (
            "apache-tvm-ffi 0.1.15.post2 is installed; "
            f"vta_byoc needs apache-tvm-ffi>=0.1.14.post0,<0.1.15; {FIX}\n"
        )

    def test_a_command_with_a_bad_release_says_what_to_run(self, tmp_path: Path) -> None:
        info = tmp_path / "apache_tvm_ffi-0.1.15.post2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: apache-tvm-ffi\nVersion: 0.1.15.post2\n")
        script = tmp_path / "vta-byoc"
        script.write_text("from vta_byoc.cli import main\nmain()\n")
        for command in (["-m", "vta_byoc"], [str(script)]):
            done = subprocess.run(
                [sys.executable, *command, "configs"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
                capture_output=True,
                text=True,
            )
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == (
                "error: apache-tvm-ffi 0.1.15.post2 is installed; "
                f"vta_byoc needs apache-tvm-ffi>=0.1.14.post0,<0.1.15; {FIX}\n"
            )

    def test_the_accepted_ffi_serialises_ir(self, tmp_path: Path) -> None:
        # What the pin is for; in a process of its own, because the failure is a crash.
        code = "import tvm; print(len(tvm.ir.save_json(tvm.tirx.IntImm('int32', 3))) > 0)"
        assert python(code, tmp_path) == "True\n"


class TestPublicNames:
    def test_one_list(self) -> None:
        assert sorted(vta_byoc._HOME) == vta_byoc.__all__
        assert set(vta_byoc.__all__) <= set(dir(vta_byoc))

    @pytest.mark.parametrize("name", vta_byoc.__all__)
    def test_loads(self, name: str) -> None:
        home = importlib.import_module(vta_byoc._HOME[name])
        assert getattr(vta_byoc, name) is getattr(home, name)

    def test_unknown_name(self) -> None:
        with pytest.raises(
            AttributeError, match=r"^module 'vta_byoc' has no attribute 'quantise'$"
        ):
            _ = vta_byoc.quantise

    def test_importing_does_not_import_tvm(self, tmp_path: Path) -> None:
        code = "import sys, vta_byoc, vta_byoc.hw.errors; print('tvm' in sys.modules)"
        assert python(code, tmp_path) == "False\n"

    @pytest.mark.parametrize("first", FIRST)
    def test_quantize_is_the_function_whoever_came_first(
        self, first: str, printed: dict[str, str]
    ) -> None:
        assert printed[first + IS_THE_FUNCTION] == "True\n"

    def test_a_module_cannot_take_a_public_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert vta_byoc.VTAError is VTAError
        monkeypatch.setattr(vta_byoc, "VTAError", types.ModuleType("vta_byoc.VTAError"))
        assert vta_byoc.VTAError is VTAError
        monkeypatch.setattr(vta_byoc, "VTAError", int)
        assert vta_byoc.VTAError is int


class TestAutoload:
    def test_importing_tvm_registers_the_pipeline_and_imports_no_compiler(
        self, printed: dict[str, str]
    ) -> None:
        assert printed[AUTOLOAD].splitlines()[:2] == [
            "vta_byoc._autoload",
            "vta_byoc vta_byoc._autoload vta_byoc._interrupt vta_byoc.base vta_byoc.base.pins "
            "vta_byoc.hw vta_byoc.hw.preset_files",
        ]

    def test_twice_is_once(self, printed: dict[str, str]) -> None:
        assert printed[AUTOLOAD].splitlines()[2] == "True"

    def test_tvm_gets_a_pass(self, printed: dict[str, str]) -> None:
        assert printed[AUTOLOAD].splitlines()[3:] == ["True"]


class TestRepository:
    def test_make_help_lists_every_target(self) -> None:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
        helped = dict(re.findall(r"^  make (\S+) +(\S.*)$", run("make"), re.MULTILINE))
        assert helped == dict(re.findall(r"^(\S+):.*?## (.+)$", makefile, re.MULTILINE))
        assert set(helped) == set(phony.split())

    def test_ci_is_an_executable_script(self) -> None:
        script = ROOT / ".ci" / "run"
        run("bash", "-n", str(script))
        assert script.stat().st_mode & 0o111

    def test_no_file_knows_this_machine(self) -> None:
        # Put together here, or this file would be the first offender.
        places = ["/".join(("", *parts, "")) for parts in (("work",), ("root",), ("home",))]
        places += ["/".join(("", "tmp", "venv")), "/".join(("..", "shared"))]
        hosts = [("pypi", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org")]
        forbidden = [*places, *(".".join(host) for host in hosts)]
        found = [
            f"{path.relative_to(ROOT)}: {text}"
            for path in repository_files()
            for text in forbidden
            if text.encode() in path.read_bytes()
        ]
        assert found == []

    def test_version_is_the_installed_one(self) -> None:
        assert importlib.metadata.version("vta-byoc") == vta_byoc.__version__
