"""Device servers at loopback: runs, the driver protocol, and everything that can go wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from integer_models import residual_net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.address import Address
from vta_byoc.hw.driver.connection import Connection, tracked_keys
from vta_byoc.hw.driver.execution import Runner
from vta_byoc.hw.driver.protocol import DeviceError, DeviceTimeout
from vta_byoc.hw.driver.remote import RemoteRunner
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.sim.devices import open_device
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.passes.compiled import Compiled
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.device_server import LocalServer, local_servers
from vta_byoc.runtime.execute import profile
from vta_byoc.runtime.pool import POOL, DevicePool, opened_pool, tracked

PYNQ = VTAConfig.preset("pynq")
NET = residual_net()
SAMPLES = [NET.inputs(seed) for seed in range(12)]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with local_servers(1) as (found,):
        yield found


@pytest.fixture(scope="module")
def pooled() -> Compiled:
    return compile_module(NET.module(NET.result), PYNQ, POOL)


@pytest.fixture(scope="module")
def wanted() -> list[np.ndarray]:
    exe = compile_module(NET.module(NET.result), PYNQ)
    return [profile(exe, sample).outputs[0] for sample in SAMPLES]


def test_programs_run_as_here_and_constants_travel_once(server: LocalServer) -> None:
    runner = RemoteRunner(server.address, 20.0)
    for seed in (0, 1, 0):
        program, inputs = random_safe_program(PYNQ, np.random.default_rng(seed))
        given = (program.insns, simulator.pack_inputs(program, inputs), program.image)
        arena, counters = runner.run(PYNQ, *given, program.arena_bytes)
        result = simulator.run(program, inputs)
        np.testing.assert_array_equal(arena, result.arena)
        assert counters == result.counters
    assert runner.connections == 1 and len(runner._sent) == 2 and runner.device_seconds > 0
    runner.close()


def test_programs_that_differ_in_constants_alone_are_told_apart(server: LocalServer) -> None:
    program, inputs = random_safe_program(PYNQ, np.random.default_rng(3))
    head, size = simulator.pack_inputs(program, inputs), program.arena_bytes
    constant = max(program.of_kind("const"), key=lambda symbol: symbol.nbytes)
    begin = constant.offset - program.input_bytes
    other = program.image.copy()
    other[begin : begin + constant.nbytes] ^= 0x55
    here, there = Runner(open_device("sim", PYNQ)), RemoteRunner(server.address, 20.0)
    out = np.empty(size, np.int8)
    for image in (program.image, other, program.image, other):
        wanted, _ = here.run(PYNQ, program.insns, head, image, size)
        found, _ = there.run(PYNQ, program.insns, head, image, size, out)
        assert found is out
        np.testing.assert_array_equal(found, wanted)
    assert len(there._sent) == 2
    there.close()


def test_the_driver_protocol_answers_over_the_connection(server: LocalServer) -> None:
    driver = open_device(str(server.address), PYNQ)
    program, inputs = random_safe_program(PYNQ, np.random.default_rng(2))
    given = (program.insns, simulator.pack_inputs(program, inputs), program.image)
    arena, _ = Runner(driver).run(PYNQ, *given, program.arena_bytes)
    np.testing.assert_array_equal(arena, simulator.run(program, inputs).arena)
    buffer = driver.allocate(8, 8)
    with pytest.raises(DeviceError, match="cannot be mapped: it is memory of another process; "):
        driver.map(buffer)
    with pytest.raises(DeviceError, match="0 instructions|DRAM byte"):
        driver.start(buffer, 1 << 20)
        driver.wait(1.0)
    driver.close()


def test_closing_ends_a_session_that_an_error_still_refers_to(server: LocalServer) -> None:
    kept = []
    for _ in range(2):
        connection = Connection(server.address, connect_timeout=30.0)
        with pytest.raises(DeviceError) as found:
            connection.call("driver", {"call": "allocate", "nbytes": -1, "align": 8})
        kept.append(found)
        connection.close()
    assert len(kept) == 2


def test_a_model_runs_on_a_server(server: LocalServer, wanted: list[np.ndarray]) -> None:
    exe = compile_module(NET.module(NET.result), PYNQ, str(server.address))
    found = profile(exe, SAMPLES[0])
    np.testing.assert_array_equal(found.outputs[0], wanted[0])
    assert found.counters["gemm_counter"] and found.cycles
    with pytest.raises(DeviceTimeout, match=" took the connection but did not answer within 0.5 s"):
        Connection(server.address, connect_timeout=0.5)


# ---------------------------------------------------------------- what can go wrong
@pytest.mark.parametrize(
    "text", ["rpc://", "rpc://host", "rpc://host:99999", "tracker://host:9190", "http://host:80"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    message = (
        f"device {text!r} is no address; it must be rpc://HOST:PORT[/KEY] or "
        "tracker://HOST:PORT/KEY; correct it"
    )
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        Address.of(text)


def test_nobody_at_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(
        DeviceError,
        match=f"^no device server at 127.0.0.1:{port} \\(Connection refused\\); one must listen "
        "there; start it \\(vta-byoc device-server\\), or correct the address$",
    ):
        Connection(Address("127.0.0.1", port))


def test_somebody_else_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        begin = time.monotonic()
        with pytest.raises(DeviceTimeout, match="did not answer within 0.3 s; "):
            Connection(address, connect_timeout=0.3)
        assert time.monotonic() - begin < 5


def test_a_port_in_use_is_refused(server: LocalServer) -> None:
    port = server.address.port
    command = [sys.executable, "-m", "vta_byoc", "device-server", "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: port {port} of 127.0.0.1 is in use; a server needs one of its own; give another "
        "--port, or 0 for any\n"
    )


# ---------------------------------------------------------------- pools
def test_a_pool_gives_every_result_once_whatever_its_devices_do(
    pooled: Compiled, wanted: list[np.ndarray]
) -> None:
    """One is killed, one stalls, one refuses from the beginning; one does the rest."""
    with local_servers(3) as servers, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = Address("127.0.0.1", nobody.getsockname()[1])
        killed, stalled, _ = servers
        pool = DevicePool([*(s.address for s in servers), dead], timeout=2.0)
        with pytest.raises(DeviceError) as wrong:
            Connection(Address("127.0.0.1", stalled.address.port, "another"))
        assert str(wrong.value) == (
            f"{stalled.address}/another refuses the key 'another'; the server was started with "
            "another one (--key); give it behind the port: rpc://HOST:PORT/KEY"
        )

        trouble: list[int] = []

        def samples() -> Iterator[list[np.ndarray]]:
            """Until the trouble has been made, and a dozen behind it."""
            for number in range(5000):
                if trouble and number > trouble[0] + 12:
                    return
                yield SAMPLES[number % len(SAMPLES)]

        count = 0
        for number, found in enumerate(pool.imap(pooled, samples())):
            np.testing.assert_array_equal(found.outputs[0], wanted[number % len(wanted)])
            count += 1
            if not trouble and all(device.done for device in pool.devices[:3]):
                os.killpg(killed.process.pid, signal.SIGKILL)
                os.killpg(stalled.process.pid, signal.SIGSTOP)
                trouble.append(number)
        assert trouble and count >= trouble[0] + 12
        assert sum(device.done for device in pool.devices) == count
        assert pool.devices[3].lost.startswith("no device server at ")
        assert pool.redone >= 2
        servers[2].stop()
        with pytest.raises(DeviceError, match="^no device of the pool is left after 0 results: "):
            pool.map(pooled, SAMPLES)


def test_an_executable_of_a_pool_needs_one(pooled: Compiled) -> None:
    with pytest.raises(DeviceError, match="^an executable of a pool runs outside of one; "):
        profile(pooled, SAMPLES[0])
    with pytest.raises(VTAError, match="^a pool without devices; "):
        DevicePool([])


# ---------------------------------------------------------------- trackers
@pytest.fixture(scope="module")
def tracker() -> Iterator[int]:
    """The port of a tracker of TVM's at loopback."""
    from tvm.rpc.tracker import Tracker

    found = Tracker("127.0.0.1", port=9590, port_end=9790, silent=True)
    yield int(found.port)
    found.terminate()


@contextmanager
def told(port: int, key: str) -> Iterator[subprocess.Popen[str]]:
    """A device server that the tracker knows by a key."""
    where = ["--port", "0", "--tracker", f"127.0.0.1:{port}", "--key", key]
    process = subprocess.Popen(
        [sys.executable, "-m", "vta_byoc", "device-server", *where],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def known(port: int, key: str, count: int) -> list[Address]:
    """The servers of a key, as soon as the tracker knows so many; 20 s at most."""
    address, deadline = Address("127.0.0.1", port, key, tracker=True), time.monotonic() + 20
    while True:
        try:
            found = tracked(address)
            if len(found) == count:
                return found
        except VTAError:
            pass
        assert time.monotonic() < deadline, f"the tracker does not know {count} servers"
        time.sleep(0.1)


def test_a_trackers_servers_share_a_data_set(
    tracker: int, pooled: Compiled, wanted: list[np.ndarray]
) -> None:
    with told(tracker, "here"), told(tracker, "here"):
        found = known(tracker, "here", 2)
        text = f"tracker://127.0.0.1:{tracker}/here"
        assert [str(address) for address in found] == [text, text]
        with opened_pool(text, timeout=20.0) as pool:
            assert len(pool.devices) == 2
            results = pool.map(pooled, SAMPLES)
            assert all(device.done for device in pool.devices)
        for result, outputs in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result.outputs[0], outputs)
        exe = compile_module(NET.module(NET.result), PYNQ, text)
        np.testing.assert_array_equal(profile(exe, SAMPLES[1]).outputs[0], wanted[1])


def test_trackers_and_keys_that_are_not_there(tracker: int) -> None:
    address = Address("127.0.0.1", tracker, "nobody", tracker=True)
    with pytest.raises(
        VTAError,
        match=f"^the tracker at 127.0.0.1:{tracker} knows no server of key 'nobody'; it knows .*; "
        "start one with --tracker and --key$",
    ):
        tracked(address)
    begin = time.monotonic()
    with pytest.raises(DeviceError, match="^tracker://127.0.0.1:[0-9]+/nobody "):
        Connection(address, connect_timeout=1.0)
    with pytest.raises(DeviceError) as found:
        tracked(Address("127.0.0.1", 1, "here", tracker=True))
    assert str(found.value) == (
        "no tracker at 127.0.0.1:1 (Connection refused); one must listen there; start it "
        "(python -m tvm.exec.rpc_tracker), or correct the address"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1], "here", tracker=True)
        with pytest.raises(DeviceTimeout, match="did not answer as a tracker within 0.3 s; "):
            tracked_keys(address, 0.3)
    assert time.monotonic() - begin < 10


def test_a_pool_of_a_name_has_as_many_devices(server: LocalServer) -> None:
    text = f"pool:{server.address},{server.address}"
    with opened_pool(text) as pool:
        assert [device.address for device in pool.devices] == [server.address] * 2
    with opened_pool(text, 1) as pool:
        assert len(pool.devices) == 1
    with pytest.raises(VTAError) as found, opened_pool(text, 3):
        pass
    assert str(found.value) == (
        f"3 devices of {text}; it has 2; start further servers, or ask for fewer"
    )


def test_wrong_inputs_are_the_callers(pooled: Compiled, server: LocalServer) -> None:
    pool = DevicePool([server.address], timeout=20.0)
    with pytest.raises(VTAError, match="^arrays given: 0; the model takes "):
        pool.map(pooled, [[]])
    assert not pool.devices[0].lost
