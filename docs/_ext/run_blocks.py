"""Run the Python and shell blocks of README and docs: `run_blocks.py [--jobs N] [PAGE...]`.

Blocks of a page run in order in a folder of their own, against the installed package and outside
of the repository: each line of the shell blocks, then the Python in one session; `make` alone runs
in the repository. Outputs that the page shows are compared with those of the commands. A page that
passed is not run again until it or the sources change. What runs, what does not and why is counted.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from block_files import FILES
from blocks import Block, all_blocks
from installed import BUILD, ROOT, installed, sources_digest
from outputs import difference

MAY_FIND = re.compile(r"^vta-byoc (compare|diff|place|verify) ")
"""Commands that are checks: exit code 1 says that they found something."""
PRELUDES = {
    "README.md": """
from models import resnet18
import numpy as np
import shutil
shutil.copy(resnet18.cached(size=32, classes=10), "resnet18.onnx")
images = [x[None] for x in resnet18.calibration_inputs(2, size=32)]
image = resnet18.sample_inputs(1, 1, size=32)
""",
    "docs/flow.md": """
import tvm
from tvm import relax
import vta_byoc as vta
from models import digits
cfg, target = vta.VTAConfig.preset("pynq"), tvm.target.Target("llvm")
mod = vta.load_model(digits.trained("resnet8", 0))
qmod = vta.quantize(mod, calibration=[digits.calibration_inputs(0, 1)], config=cfg)
""",
}
"""What a page's reader is supposed to have: his model and his images."""
LONGEST = 600.0
"""Seconds that a page's Python, or one command, may take."""
SOURCES = {
    "examples": ("examples",),
    "benchmarks": ("benchmarks", "tests/support", "tests/fixtures"),
}
"""Folders of the sources by the name with which commands begin their paths, and what they need."""
EXTRAS = {"rtl": "amaranth", "tflite": "ai_edge_litert", "torch": "torch"}
"""A module of each extra."""
WIDTH = "100"
"""Columns of the terminal for which tables are laid out."""


def environment(folder: Path) -> dict[str, str]:
    """The caller's, with the installed package's command first; pip installs into `folder`."""
    package, threads = installed(), ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS")
    own = folder / "environment"
    own_packages = sysconfig.get_path("purelib", "posix_prefix", {"base": str(own)})
    path = (own / "bin", package / "bin", Path(sys.executable).parent, os.environ.get("PATH", ""))
    pip = {"PIP_PREFIX": str(own), "PIP_NO_BUILD_ISOLATION": "0"}
    return {
        **os.environ,
        **dict.fromkeys(threads, "1"),
        **pip,
        "COLUMNS": WIDTH,
        "PYTHONPATH": os.pathsep.join((own_packages, str(package))),
        "PATH": os.pathsep.join(map(str, path)),
    }


def failures(page: str, found: Sequence[Block]) -> Iterator[str]:
    """Run a page's blocks; a text for each that fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").symlink_to(installed() / "models")
        of_shell = [block for block in found if block.kind == "shell" or block.printed_by]
        code = "\n".join(f"{block.code}\n{block.printed_by}" for block in of_shell)
        _copy_sources(code, folder)
        _make_files(code, folder)
        printed: dict[str, str] = {}
        for block in of_shell:
            if block.printed_by:
                yield from _compared(block, printed, folder)
                continue
            with _beside(block, folder):
                for command in commands(block.code):
                    yield from _run_command(block, command, printed, folder)
        python = [block for block in found if block.kind == "python"]
        if python:
            yield from _run_python(page, python, folder)


def _run_command(
    block: Block, command: str, printed: dict[str, str], folder: Path
) -> Iterator[str]:
    """Run a command of a page and keep what it prints; a text if it fails."""
    where = ROOT if command.startswith("make ") else folder
    given = {**environment(folder), **_make_variables()} if where is ROOT else environment(folder)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=where,
        env=given,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    printed[" ".join(_uncommented(command).split())] = done.stdout + done.stderr
    if done.returncode and not (done.returncode == 1 and MAY_FIND.match(command)):
        said = (done.stdout + done.stderr)[-3000:]
        yield f"{block.where}: {command}\nexit code {done.returncode}\n{said}"


def _compared(block: Block, printed: dict[str, str], folder: Path) -> Iterator[str]:
    """Compare an output that a page shows; a text where its command prints another."""
    command = block.printed_by
    if command not in printed:  # of an error, or of a variant: it may end with any code
        list(_run_command(block, command, printed, folder))
    if found := difference(block.code, printed[command]):
        yield f"{block.where}: output of {command}\n{found}"


def _make_variables() -> dict[str, str]:
    """Variables for `make`: none below the `make` that runs this, else those of this Python."""
    if "MAKEFLAGS" in os.environ:
        return {}
    stamps = sorted(Path(sys.prefix).glob(".ready-*"))
    extras = stamps[-1].name.removeprefix(".ready-").replace("-", ",") if stamps else "dev"
    return {"MAKEFLAGS": f"VENV={sys.prefix} EXTRAS={extras}"}


def _uncommented(command: str) -> str:
    return re.sub(r"\s#\s.*$", "", command)


def _copy_sources(code: str, folder: Path) -> None:
    """Copy the folders of the sources that commands name, as a reader has them in a clone."""
    for name, needed in SOURCES.items():
        if re.search(rf"(?<![\w-]){name}/", code):
            for each in needed:
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(ROOT / each, folder / each, ignore=ignored)


@contextmanager
def _beside(block: Block, folder: Path) -> Iterator[None]:
    """Run what a block needs beside it, from its first line of output until the block is done."""
    if not block.beside:
        yield
        return
    process = subprocess.Popen(
        shlex.split(block.beside),
        cwd=folder,
        env={**environment(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def commands(code: str) -> list[str]:
    """The commands of a shell block, continued lines joined."""
    return [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]


def _run_python(page: str, found: Sequence[Block], folder: Path) -> Iterator[str]:
    """All Python of a page in one session, each line at the number that it has in the page."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    # Files of TVM's own sources are found by their names: the page gets one of its own.
    script = folder / f"{Path(page).stem.replace('-', '_')}_page.py"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    prelude = PRELUDES.get(page)
    if prelude:  # it shows how calls look, with a model of the reader
        yield from _run(f"{page}: what it needs", [sys.executable, "-c", prelude], folder)
        code = prelude + f"exec(compile(open({script.name!r}).read(), {page!r}, 'exec'))"
        yield from _run(page, [sys.executable, "-c", code], folder)
    else:
        yield from _run(page, [sys.executable, script.name], folder, prints=True)


def _make_files(code: str, folder: Path) -> None:
    """Make the files that commands name and none of them writes before."""
    for name, make in FILES.items():
        named = re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", code)
        if named and not (folder / name).exists():
            make(folder / name)


def _run(what: str, command: Sequence[str], folder: Path, *, prints: bool = False) -> Iterator[str]:
    """Run a command; what it said if it failed, or if it printed nothing although it `prints`."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    if done.returncode:
        yield f"{what}\nexit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
    elif prints and not done.stdout:
        yield f"{what}\nit prints nothing; show a result, so that readers see one"


def there_is(name: str) -> bool:
    """Whether an extra of the package, or a program that is none of Python's, is installed."""
    if name in EXTRAS:
        return importlib.util.find_spec(EXTRAS[name]) is not None
    return shutil.which(name) is not None


def _passed(page: str) -> Path:
    """The file that says that this page passed with these sources."""
    digest = hashlib.sha256((ROOT / page).read_bytes() + sources_digest().encode())
    for name in ("blocks.py", "block_files.py", "outputs.py", "run_blocks.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    digest.update(repr([there_is(name) for name in EXTRAS]).encode())
    return BUILD / "passed" / f"{Path(page).stem}-{digest.hexdigest()[:16]}"


def check(page: str, found: Sequence[Block]) -> list[str]:
    """The failures of one page; none if it passed before."""
    if _passed(page).exists():
        return []
    failed = list(failures(page, found))
    if not failed:
        _passed(page).parent.mkdir(parents=True, exist_ok=True)
        _passed(page).touch()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("pages", nargs="*")
    options = parser.parse_args()
    found = all_blocks()
    runs = {b.page for b in found if b.kind in ("python", "shell")}
    pages = [page for page in sorted(runs) if not options.pages or page in options.pages]
    installed()
    sys.path.append(str(ROOT))
    possible = [block for block in found if all(map(there_is, block.needs.split()))]
    of_page = [[block for block in possible if block.page == page] for page in pages]
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [text for texts in pool.map(check, pages, of_page) for text in texts]
    for text in failed:
        print(text, file=sys.stderr)
    count = Counter(block.kind for block in found)
    print(
        f"{count['cells']} cells run by the pages, {count['python']} Python and {count['shell']} "
        f"shell blocks run, {sum(bool(b.printed_by) for b in found)} outputs compared, "
        f"{len(found) - len(possible)} left out for what they need, {count['stated']} not run as "
        f"stated, {count['unmarked Python']} unstated; {len(failed)} failed"
    )
    return 1 if failed or count["unmarked Python"] else 0


if __name__ == "__main__":
    sys.exit(main())
