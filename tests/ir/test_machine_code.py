"""Modules with machine code of the system's linker compute what those of TVM's JIT do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from small_models import PLAIN, Graph
from tvm import relax, te, tirx

from vta_byoc.hw.sim import machine_code
from vta_byoc.hw.sim.machine_code import with_machine_code
from vta_byoc.hw.sim.target import unoptimized_target
from vta_byoc.ir.machine_code import KIND, linked
from vta_byoc.strategies.te.definition import elementwise

needs_linker = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("ld") is None, reason="there is no linker"
)


def built() -> tuple[relax.VMExecutable, np.ndarray]:
    """Functions that call the C library, an error check, and a layer."""
    g = Graph((2, 5, 16))
    x = g.op("tanh", g.op("exp", g.op("matmul", g.params[0], g.normal(16, 24))))
    mod = g.module(g.op("nn.softmax", x))
    return relax.build(mod, unoptimized_target()), g.rng.standard_normal((2, 5, 16)).astype("f4")


def kinds(executable: relax.VMExecutable) -> list[str]:
    return [module.kind for module in executable.mod.imports]


def run(executable: relax.VMExecutable, x: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


@needs_linker
def test_a_library_computes_what_the_jit_does() -> None:
    (jitted, x), (executable, _) = built(), built()
    assert linked(executable) is executable
    assert kinds(executable) != [KIND] and kinds(jitted) == [KIND]
    np.testing.assert_array_equal(run(executable, x), run(jitted, x))
    with pytest.raises(Exception, match="shape|ndim|dimension|match"):
        run(executable, x[0])


@needs_linker
def test_the_c_library_is_linked_where_functions_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, ...]] = []
    link = machine_code._link

    def recorded(linker: str, built: int, library: Path, also: Sequence[str]) -> bool:
        tried.append(tuple(also))
        return link(linker, built, library, also)

    monkeypatch.setattr(machine_code, "_link", recorded)
    x = te.placeholder((8,), "float32")
    results = {}
    for name, function in (("twice", lambda v: v * 2.0), ("exp", tirx.exp)):
        y = elementwise(name, function, x)
        main = te.create_prim_func([x, y]).with_attr("global_symbol", "main")
        module = with_machine_code(tvm.tirx.build(tvm.IRModule({"main": main}), PLAIN))
        result = tvm.runtime.tensor(np.zeros(8, "f4"))
        module["main"](tvm.runtime.tensor(np.arange(8, dtype="f4")), result)
        results[name] = module.kind != KIND, result.numpy()
    assert tried == [(), (), machine_code.LIBRARIES]
    assert results["twice"][0] and results["exp"][0]
    np.testing.assert_array_equal(results["twice"][1], np.arange(8) * 2)
    np.testing.assert_allclose(results["exp"][1], np.exp(np.arange(8, dtype="f4")), rtol=1e-6)


def test_without_a_linker_the_jit_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    executable, x = built()
    monkeypatch.setattr(machine_code, "linker", lambda: None)
    assert kinds(linked(executable)) == [KIND]
    assert np.isfinite(run(executable, x)).all()


@needs_linker
def test_what_does_not_link_is_left_to_the_jit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executable, x = built()
    broken = tmp_path / "ld"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(machine_code, "linker", lambda: str(broken))
    assert kinds(linked(executable)) == [KIND]
    assert np.isfinite(run(executable, x)).all()


@needs_linker
def test_a_full_disk_leaves_it_to_the_jit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The linker says so and ends; nothing is left behind, and what is compiled runs."""
    executable, x = built()
    limited = tmp_path / "ld"
    limited.write_text(f'#!/bin/sh\nulimit -f 1\nexec {shutil.which("ld")} "$@"\n')
    limited.chmod(0o755)
    monkeypatch.setattr(machine_code, "linker", lambda: str(limited))
    monkeypatch.setattr(machine_code.tempfile, "tempdir", str(tmp_path))
    assert kinds(linked(executable)) == [KIND]
    assert [path.name for path in tmp_path.iterdir()] == ["ld"]
    assert np.isfinite(run(executable, x)).all()


@needs_linker
def test_without_a_folder_for_temporary_files_the_jit_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executable, x = built()
    monkeypatch.setattr(machine_code.tempfile, "tempdir", str(tmp_path / "absent"))
    assert kinds(linked(executable)) == [KIND]
    assert np.isfinite(run(executable, x)).all()
