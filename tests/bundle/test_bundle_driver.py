"""The driver table: what the runtime calls, and what it says when a device does not do its part."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
from bundle_driver import DEVICE, PTR, TIMEOUT, U32, U64, Bundle, shared_library
from bundle_runs import C_FOLDER, STRICT, compiler, drawn_inputs, reference, results_of

FAILED = "the driver's status is {}; look at the driver and the board"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return shared_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def bundle(library: ctypes.CDLL, small_bundle: Path) -> Bundle:
    return Bundle(library, small_bundle)


@pytest.fixture(scope="module")
def case(small_module: tvm.IRModule) -> tuple[list[np.ndarray], np.ndarray]:
    """Inputs, and what the integer dialect makes of them."""
    inputs = drawn_inputs(small_module, 0)
    return inputs, results_of(reference(small_module), inputs)[0]


@pytest.mark.parametrize("mapped", [True, False])
def test_memory_is_mapped_or_copied(
    mapped: bool, bundle: Bundle, case: tuple[list[np.ndarray], np.ndarray]
) -> None:
    inputs, wanted = case
    if not mapped:
        bundle.driver.map = None
    assert bundle.open() == ""
    for _ in range(2):
        found = np.empty_like(wanted)
        assert bundle.run(inputs, [found]) == ""
        np.testing.assert_array_equal(found, wanted)
    bundle.close()


def test_it_can_be_opened_again(bundle: Bundle) -> None:
    """Memory of the device is given back: there is room for one model."""
    for _ in range(3):
        assert bundle.open() == ""
        bundle.close()
    assert bundle.open() == ""
    assert bundle.open() == (
        "the device failed in allocate: the simulated memory is full; the driver's status is 6; "
        "look at the driver and the board"
    )


def test_a_device_that_hangs_is_reset(
    bundle: Bundle, case: tuple[list[np.ndarray], np.ndarray]
) -> None:
    calls: list[str] = []
    wait, reset = bundle.original("wait", U32), bundle.original("reset")

    def hang_once(state: int, timeout: int) -> int:
        calls.append(f"wait {timeout}")
        return TIMEOUT if len(calls) == 1 else wait(state, timeout)

    def note_reset(state: int) -> int:
        calls.append("reset")
        return reset(state)

    bundle.replace("wait", hang_once, U32)
    bundle.replace("reset", note_reset)
    assert bundle.open() == ""
    inputs, wanted = case
    found = np.empty_like(wanted)
    assert bundle.run(inputs, [found], 250) == (
        'program "region0" did not finish within 250 ms; the device was reset; give more time or '
        "look at the board"
    )
    assert calls == ["wait 250", "reset"]
    assert bundle.run(inputs, [found], 251) == ""
    np.testing.assert_array_equal(found, wanted)
    bundle.close()


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("start", (U64, U32)),
        ("wait", (U32,)),
        ("flush", (PTR, U64, U64)),
        ("copy_to", (PTR, U64, PTR, ctypes.c_size_t)),
        ("copy_from", (PTR, U64, PTR, ctypes.c_size_t)),
    ],
)
def test_a_call_that_fails_while_it_runs(
    name: str,
    types: tuple[type, ...],
    bundle: Bundle,
    case: tuple[list[np.ndarray], np.ndarray],
) -> None:
    bundle.driver.map = bundle.driver.explain = None
    broken: list[bool] = []
    original = bundle.original(name, *types)
    bundle.replace(name, lambda *args: DEVICE if broken else original(*args), *types)
    assert bundle.open() == ""
    broken.append(True)
    what = name.partition("_")[0]
    inputs, wanted = case
    found = np.empty_like(wanted)
    assert bundle.run(inputs, [found]) == f"the device failed in {what}; {FAILED.format(DEVICE)}"
    broken.clear()
    bundle.original("reset")(bundle.sim)
    assert bundle.run(inputs, [found]) == ""
    np.testing.assert_array_equal(found, wanted)
    bundle.close()


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("version", (PTR,)),
        ("capabilities", (PTR,)),
        ("allocate", (U64, U64, PTR)),
        ("map", (PTR, PTR)),
    ],
)
def test_a_call_that_fails_at_the_beginning(
    name: str, types: tuple[type, ...], bundle: Bundle
) -> None:
    bundle.driver.explain = None
    bundle.replace(name, lambda *_: DEVICE, *types)
    assert bundle.open() == f"the device failed in {name}; {FAILED.format(DEVICE)}"


def test_another_interface(bundle: Bundle) -> None:
    bundle.driver.interface_version = 2
    assert bundle.open() == (
        "the driver has interface version 2; this runtime calls version 1; build both of one "
        "release"
    )


def test_a_missing_function(bundle: Bundle) -> None:
    bundle.driver.reset = None
    assert bundle.open() == (
        "the driver lacks a function; all but map and explain are needed; fill in the table"
    )


def test_another_machine(bundle: Bundle) -> None:
    def other(_state: int, machine: int) -> int:
        fields = ctypes.cast(machine, ctypes.POINTER(U32))
        for i, value in enumerate(bundle.info.machine):
            fields[i] = value
        fields[1] += 1
        return 0

    bundle.replace("capabilities", other, PTR)
    assert bundle.open() == (
        "the bundle is for another machine: log_block 4, the device has 5; compile the model for "
        "this device (--config)"
    )


def test_too_little_memory(bundle: Bundle) -> None:
    bundle.host = ctypes.create_string_buffer(1000)
    assert bundle.open() == (
        f"the model takes {bundle.info.host_bytes} bytes of the host; 1000 were given; give as "
        "much as vta_look says"
    )


def test_nothing_is_given(bundle: Bundle) -> None:
    assert bundle.open() == ""
    assert bundle._call("vta_run", bundle.model, None, None, 1) == (
        "vta_run needs a model, inputs and outputs; one is NULL; give all"
    )
    bundle.close()


@pytest.mark.parametrize("name", ["vta_runtime.c", "vta_sim.c"])
def test_neither_source_allocates(name: str, tmp_path: Path) -> None:
    """Nor needs a library but C's own; without files not even stdio."""
    made = tmp_path / "made.o"
    command = [compiler(), *STRICT, "-O2", "-DVTA_NO_STDIO", "-c", str(C_FOLDER / name)]
    done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run([compiler("nm"), "-u", made], capture_output=True, text=True).stdout
    needed = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    allowed = {"memcpy", "memset", "memmove", "memcmp", "strcmp", "strlen", "expf"}
    assert needed - allowed <= {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
