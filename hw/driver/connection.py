"""A session with a device server, over TVM's RPC.

The server is `hw/sim/device_server.py`; what runs on it is in `remote.py`. Every call is made by a
thread of its own, so that one that gets no answer can be given up: TVM's client waits for ever.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vta_byoc.hw.driver.address import Address, check_listens
from vta_byoc.hw.driver.exchange import Exchange, places
from vta_byoc.hw.driver.protocol import (
    DeviceError,
    DeviceTimeout,
)

PROTOCOL = 1
"""Client and server must have the same."""
PREFIX = "vta_byoc.server."
"""Names of the server's functions begin with it."""
CONNECT_SECONDS = 15.0
CALL_SECONDS = 60.0
LOAD_SECONDS = 30.0
"""How long a connection and a call may take unless one says otherwise; the call that loads a
program may take LOAD_SECONDS at least, as the server compiles its simulator then."""
LEAST_EXCHANGE = 1 << 20
"""Bytes of the file for tensors between processes of one computer, at least."""
READS, WRITES, GIVEN = "reads", "writes", "given"
"""Where a call's tensors are: places in the file, or how many of those given are read."""


Answer = queue.SimpleQueue[tuple[Any, BaseException | None]]
"""Where what a call returned, or raised, will be."""
Answered = tuple[dict[str, Any], list[np.ndarray]]
"""What a function of the server says, and the tensors that it wrote."""
Shape = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor that the server writes."""


class _Held:
    """A session and its functions: what only the thread of a connection refers to.

    Dropping them talks to the server, which may not answer.
    """

    def __init__(self) -> None:
        self.session: Any = None
        self.functions: dict[str, Any] = {}
        self.exchange: Exchange | None = None
        self.near = True

    def connect(self, address: Address) -> None:
        """Open the session."""
        from tvm import rpc

        if address.tracker:
            tracker = rpc.connect_tracker(address.host, address.port)
            self.session = tracker.request(address.key, max_retry=1)
        else:
            self.session = rpc.connect(address.host, address.port, address.key)

    def disconnect(self) -> None:
        """End the session, whoever still refers to it: an error's traceback may."""
        session, self.session, self.functions = self.session, None, {}
        if session is not None:
            with contextlib.suppress(RuntimeError):  # the server is gone: so is the session
                session.get_function("CloseRPCConnection")()

    def call(
        self,
        name: str,
        about: dict[str, Any],
        arrays: Sequence[np.ndarray],
        results: Sequence[Shape],
    ) -> Answered:
        """Call a function of the server: what it says, and the tensors that it writes."""
        shapes = [*((a.shape, str(a.dtype)) for a in arrays), *results]
        spots, size = places(shapes)
        if not shapes or not self._shares(size):
            return self._plain(name, about, arrays, results)
        assert self.exchange is not None
        for array, place in zip(arrays, spots, strict=False):
            self.exchange.view(place)[...] = array
        data = {**about, READS: spots[: len(arrays)], WRITES: spots[len(arrays) :]}
        said = self._answer(name, data)
        return said, [self.exchange.view(place).copy() for place in spots[len(arrays) :]]

    def _plain(
        self,
        name: str,
        about: dict[str, Any],
        arrays: Sequence[np.ndarray],
        results: Sequence[Shape],
    ) -> Answered:
        """The tensors travel with TVM's RPC."""
        from tvm.runtime import empty

        device = self.session.cpu()
        given = [empty(a.shape, str(a.dtype), device).copyfrom(a) for a in arrays]
        written = [empty(shape, dtype, device) for shape, dtype in results]
        said = self._answer(name, {**about, GIVEN: len(given)}, *given, *written)
        return said, [tensor.numpy() for tensor in written]

    def _answer(self, name: str, about: dict[str, Any], *tensors: Any) -> dict[str, Any]:
        if name not in self.functions:
            self.functions[name] = self.session.get_function(PREFIX + name)
        found: dict[str, Any] = json.loads(
            self.functions[name](json.dumps(about).encode(), *tensors)
        )
        return found

    def _shares(self, nbytes: int) -> bool:
        """Whether there is a file of so many bytes that the server maps too."""
        if not self.near:
            return False
        if self.exchange is not None and len(self.exchange) >= nbytes:
            return True
        try:
            made = Exchange(max(nbytes, LEAST_EXCHANGE))
        except OSError:  # no place for the file: the tensors travel
            self.near = False
            return False
        about = {"path": str(made.path), "token": made.token}
        try:
            self.near = self._answer("share", about)["shared"]
        finally:
            made.forget_name()
        self.exchange = made if self.near else None
        return self.near


class _Job(NamedTuple):
    work: Callable[[_Held], Any]
    answer: Answer


class _Caller:
    """A thread that makes calls one after the other; one that does not return is left alone."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()

    def begin(self, work: Callable[[_Held], Any]) -> Answer:
        """Let the thread call `work`; where the answer will be."""
        answer: Answer = queue.SimpleQueue()
        self._jobs.put(_Job(work, answer))
        return answer

    def call(self, work: Callable[[_Held], Any], timeout: float) -> Any:
        """What `work` returns or raises; queue.Empty after `timeout` seconds."""
        return _answered(self.begin(work), timeout)

    def end(self) -> None:
        """The thread ends the session behind the call that it is in."""
        self._jobs.put(None)


def _answered(answer: Answer, timeout: float) -> Any:
    """What a call returned or raised; queue.Empty after `timeout` seconds."""
    found, error = answer.get(timeout=timeout)
    if error is not None:
        raise error
    return found


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    held = _Held()
    while (job := jobs.get()) is not None:
        try:
            job.answer.put((job.work(held), None))
        except Exception as err:
            job.answer.put((None, err))
        del job
    held.disconnect()


def tracked_keys(address: Address, timeout: float = CONNECT_SECONDS) -> list[str]:
    """The key of every server that a tracker knows.

    Raises:
        DeviceError: nobody is there, or nobody who answers as a tracker does.
    """
    from tvm import rpc

    check_listens(address, timeout)
    caller, where = _Caller(str(address)), (address.host, address.port)
    try:
        found = caller.call(lambda _held: rpc.connect_tracker(*where).summary(), timeout)
    except queue.Empty:
        raise DeviceTimeout(
            f"{address.host}:{address.port} took the connection but did not answer as a tracker "
            f"within {timeout:g} s; correct the address, or start the tracker again"
        ) from None
    except (OSError, RuntimeError, ValueError) as err:
        raise DeviceError(
            f"{address.host}:{address.port} is no tracker ({' '.join(str(err).split())[:160]}); "
            "one must listen there; start it (python -m tvm.exec.rpc_tracker), or correct it"
        ) from err
    finally:
        caller.end()
    return [entry["key"].partition(":")[2] for entry in found["server_info"]]


class Connection:
    """One session with a device server.

    Args:
        address: where it is.
        timeout: seconds that a call may take.
        connect_timeout: seconds that connecting may take.

    Raises:
        DeviceError: nobody is there, it is no device server, or one of another version or key.
    """

    def __init__(
        self,
        address: Address,
        timeout: float = CALL_SECONDS,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._caller = _Caller(str(address))
        try:
            self._connect(connect_timeout)
        except DeviceError:
            self._caller.end()
            raise
        self.about: dict[str, Any] = self.call("describe", {})[0]
        if self.about["protocol"] != PROTOCOL:
            raise DeviceError(
                f"{address} speaks version {self.about['protocol']} of the protocol (vta-byoc "
                f"{self.about['version']}); this is version {PROTOCOL}; install the same release "
                "of vta_byoc on both sides"
            )

    def _connect(self, timeout: float) -> None:
        address = self.address
        check_listens(address, timeout)
        try:
            self._caller.call(lambda held: held.connect(address), timeout)
        except queue.Empty:
            raise DeviceTimeout(
                f"{address} took the connection but did not answer within {timeout:g} s; a server "
                "has one session at a time; end the other session, wait for it, or start another "
                "server"
            ) from None
        except Exception as err:
            raise self._refused(err) from err

    def _refused(self, err: Exception) -> DeviceError:
        text = " ".join(str(err).split())
        if "mismatch" in text.lower() or "key" in text.lower():
            return DeviceError(
                f"{self.address} refuses the key {self.address.key!r}; the server was started with "
                "another one (--key); give it behind the port: rpc://HOST:PORT/KEY"
            )
        return DeviceError(
            f"{self.address} is no device server: {text[:200]}; it must speak TVM's RPC; start "
            "one with vta-byoc device-server",
            transient=True,
        )

    def call(
        self,
        name: str,
        about: dict[str, Any],
        *arrays: np.ndarray,
        results: Sequence[Shape] = (),
        timeout: float | None = None,
    ) -> Answered:
        """Call a function of the server, and wait for its answer; arguments as of `begin`.

        Returns:
            What it says, and the tensors `results`.

        Raises:
            DeviceTimeout: no answer within the time; the connection is of no use any more.
            DeviceError: the server does not have the function, is gone, or says so.
        """
        return self.begin(name, about, *arrays, results=results, timeout=timeout)()

    def begin(
        self,
        name: str,
        about: dict[str, Any],
        *arrays: np.ndarray,
        results: Sequence[Shape] = (),
        timeout: float | None = None,
    ) -> Callable[[], Answered]:
        """Begin a call of a function of the server; the caller goes on meanwhile.

        Args:
            name: the function.
            about: what it is told, as JSON has it.
            arrays: tensors that it reads; they do not change before the answer is there.
            results: the tensors that it writes.
            timeout: seconds that it may take, where not those of the connection.

        Returns:
            What waits for the answer: it returns and raises what `call` does.
        """
        allowed = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + allowed
        answer = self._caller.begin(lambda held: held.call(name, about, arrays, results))
        return lambda: self._wait(name, answer, deadline, allowed)

    def _wait(self, name: str, answer: Answer, deadline: float, allowed: float) -> Answered:
        """The answer to a call that was begun."""
        try:
            found: Answered = _answered(answer, max(0.0, deadline - time.monotonic()))
            return found
        except queue.Empty:
            raise DeviceTimeout(
                f"{self.address} did not answer {name} within {allowed:g} s; the server is stalled "
                "or its device works longer than that; look at it, or allow more time"
            ) from None
        except AttributeError as err:
            raise DeviceError(
                f"{self.address} is a server of TVM without devices (it has no {PREFIX}{name}); it "
                "must be one of vta_byoc; start it with vta-byoc device-server"
            ) from err
        except Exception as err:
            raise self._failed(name, err) from err

    def _failed(self, name: str, err: Exception) -> DeviceError:
        """What the server's device said, or that the server is gone."""
        text = " ".join(str(err).split())
        said = text.partition(SAYS)[2].partition(SAYS_END)[0]
        if said:
            return DeviceError(f"{self.address}: {said}")
        return DeviceError(
            f"{self.address} is gone ({name}: {text[:160]}); the server ended or the network "
            "failed; start it again",
            transient=True,
        )

    def close(self) -> None:
        """End the session; behind a call that got no answer it ends when that does."""
        self._caller.end()


SAYS, SAYS_END = "[device says] ", " [device has said]"
"""Around what a device's error says, in the text that crosses the connection."""
