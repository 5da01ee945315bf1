"""A data set over several devices: results in order, work of devices that die or stall done again.

One executable, compiled for device POOL, serves all of them: each device has a thread, which runs
the host's operators and hands regions to its device.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from vta_byoc.hw.driver.address import RPC, TRACKER, Address
from vta_byoc.hw.driver.chosen_runner import chosen
from vta_byoc.hw.driver.connection import CALL_SECONDS, tracked_keys
from vta_byoc.hw.driver.protocol import DeviceError, DeviceTimeout
from vta_byoc.hw.driver.remote import RemoteRunner
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import POOL_KIND
from vta_byoc.runtime.device_server import local_servers
from vta_byoc.runtime.execute import Inputs, profile
from vta_byoc.runtime.profile import Compilation, Profile

__all__ = ["POOL", "DevicePool", "PoolDevice", "is_pool", "opened_pool", "tracked"]

SCHEME = f"{POOL_KIND}:"
"""What a device's name begins with that is a list of addresses: `pool:ADDRESS,ADDRESS`."""
POOL = f"{SCHEME}devices"
"""The device that an executable for a pool is compiled for."""
MOST_FAILURES = 2
"""Failures one after the other before a device is given up; one that stalls is at once."""
AHEAD = 2
"""Samples a device that are taken before their turn."""
PAUSE_SECONDS = 0.2
"""Before a device that failed is asked again."""
_LOG = logging.getLogger(__name__)


@dataclass
class PoolDevice:
    """One device of a pool.

    Attributes:
        address: where it is.
        done: samples that it has given results of.
        failures: calls that failed.
        lost: why it was given up; "" while it was not.
    """

    address: Address
    done: int = 0
    failures: int = 0
    lost: str = ""


@dataclass
class _Shared:
    """What the threads of one data set share, under one lock."""

    samples: Iterator[Inputs]
    ahead: int
    turn: threading.Condition = field(default_factory=threading.Condition)
    waiting: collections.deque[tuple[int, Inputs]] = field(default_factory=collections.deque)
    running: int = 0
    taken: int = 0
    given: int = 0
    exhausted: bool = False
    stopped: bool = False
    results: dict[int, Profile] = field(default_factory=dict)
    error: Exception | None = None

    def next(self) -> tuple[int, Inputs] | None:
        """The next sample to run; waits where others may give theirs back; None at the end."""
        with self.turn:
            while not self.stopped:
                if self.waiting:
                    self.running += 1
                    return self.waiting.popleft()
                if not self.exhausted and self.taken < self.given + self.ahead:
                    self._take()
                    continue
                if self.exhausted and not self.running:
                    return None
                self.turn.wait()
            return None

    def _take(self) -> None:
        try:
            self.waiting.append((self.taken, next(self.samples)))
            self.taken += 1
        except StopIteration:
            self.exhausted = True
            self.turn.notify_all()
        except Exception as err:  # what the caller's own iterator raises is the caller's
            self._stop(err)

    def done(self, number: int, result: Profile) -> None:
        """Keep a result, once."""
        with self.turn:
            self.running -= 1
            assert number not in self.results and number >= self.given
            self.results[number] = result
            self.turn.notify_all()

    def again(self, number: int, sample: Inputs) -> None:
        """Give a sample back, to be run before all others."""
        with self.turn:
            self.running -= 1
            self.waiting.appendleft((number, sample))
            self.turn.notify_all()

    def stop(self, error: Exception | None = None) -> None:
        """Let every thread end; `error` is raised to who reads the results."""
        with self.turn:
            self._stop(error)

    def _stop(self, error: Exception | None) -> None:
        self.stopped = True
        self.error = self.error or error
        self.turn.notify_all()


class DevicePool:
    """Device servers that share the samples of a data set.

    Args:
        devices: addresses (`rpc://host:port[/key]`, `tracker://host:port/key`), one a device; a
            tracker's address as often as it has servers (see `tracked`).
        timeout: seconds that a call may take; a device that takes longer is given up.

    Attributes:
        devices: what became of each device.
        redone: samples that had to be run again.
    """

    def __init__(self, devices: Sequence[str | Address], timeout: float = CALL_SECONDS) -> None:
        if not devices:
            raise VTAError("a pool without devices; it needs one or more; name them")
        found = [d if isinstance(d, Address) else Address.of(d) for d in devices]
        self.devices = [PoolDevice(address) for address in found]
        self.redone = 0
        self._timeout = timeout

    def map(self, exe: Compilation, samples: Iterable[Inputs]) -> list[Profile]:
        """The profile of every sample, in their order; see `imap`."""
        return list(self.imap(exe, samples))

    def imap(self, exe: Compilation, samples: Iterable[Inputs]) -> Iterator[Profile]:
        """Run samples, and yield their profiles in the order of the samples.

        Args:
            exe: what `compile_module(..., device=POOL)` returned.
            samples: inputs as `vta_byoc.profile` takes them; some are read ahead.

        Raises:
            DeviceError: every device was given up before the end; the message says why each was.
            VTAError: a sample that the model does not take, or an error that is no device's.
        """
        shared = _Shared(iter(samples), AHEAD * len(self.devices))
        alive = [device for device in self.devices if not device.lost]
        threads = [
            threading.Thread(target=self._work, args=(device, exe, shared), daemon=True)
            for device in alive
        ]
        for thread in threads:
            thread.start()
        try:
            yield from self._in_order(shared, threads)
        finally:
            shared.stop()
            for thread in threads:
                thread.join(self._timeout)

    def _in_order(self, shared: _Shared, threads: Sequence[threading.Thread]) -> Iterator[Profile]:
        while True:
            with shared.turn:
                while shared.given not in shared.results and shared.error is None:
                    if shared.exhausted and shared.given == shared.taken:
                        return
                    if all(device.lost for device in self.devices):
                        raise self._all_lost(shared.given)
                    shared.turn.wait()
                if shared.given not in shared.results:
                    assert shared.error is not None
                    raise shared.error
                result = shared.results.pop(shared.given)
                shared.given += 1
                shared.turn.notify_all()
            yield result

    def _all_lost(self, done: int) -> DeviceError:
        why = "; ".join(f"{device.address}: {device.lost}" for device in self.devices)
        return DeviceError(
            f"no device of the pool is left after {done:,} results: {why}; start them again, and "
            f"go on with sample {done:,}"
        )

    def _work(self, device: PoolDevice, exe: Compilation, shared: _Shared) -> None:
        """One device: take samples until there are none, or it is given up."""
        runner = RemoteRunner(device.address, self._timeout)
        in_a_row = 0
        while (job := shared.next()) is not None:
            number, sample = job
            try:
                with chosen(runner):
                    result = profile(exe, sample)
            except DeviceError as err:
                device.failures += 1
                in_a_row += 1
                lost = isinstance(err, DeviceTimeout) or in_a_row >= MOST_FAILURES
                _LOG.warning("%s: %s", device.address, err)
                with shared.turn:
                    self.redone += 1
                    device.lost = str(err) if lost else ""
                shared.again(number, sample)
                if lost:
                    break
                threading.Event().wait(PAUSE_SECONDS)
            except Exception as err:
                shared.stop(err)
                return
            else:
                in_a_row = 0
                device.done += 1
                shared.done(number, result)
        runner.close()


def tracked(address: Address) -> list[Address]:
    """A tracker's address as often as it knows servers of the key.

    Raises:
        VTAError: no tracker is there, or it knows none.
    """
    keys = tracked_keys(address)
    count = keys.count(address.key)
    if not count:
        raise VTAError(
            f"the tracker at {address.host}:{address.port} knows no server of key "
            f"{address.key!r}; it knows {', '.join(sorted(set(keys))) or 'none'}; start one with "
            "--tracker and --key"
        )
    return [address] * count


def is_pool(device: str) -> bool:
    """Whether a device's name stands for several: addresses, or a tracker's servers."""
    return device.startswith((SCHEME, f"{TRACKER}:"))


@contextmanager
def opened_pool(
    device: str, count: int | None = None, timeout: float = CALL_SECONDS
) -> Iterator[DevicePool]:
    """Within the block a pool by the name of a device, and how many of it.

    Args:
        device: `pool:ADDRESS,ADDRESS` for the servers there; `tracker://HOST:PORT/KEY` for those
            that the tracker knows; a device of this computer, which servers are started for.
        count: how many devices; None for all that are named or known, and for one here.
        timeout: as of `DevicePool`.

    Raises:
        VTAError: a wrong address, or fewer devices than `count`.
    """
    if not is_pool(device) and not device.startswith(f"{RPC}:"):
        with local_servers(count or 1, device) as servers:
            yield DevicePool([server.address for server in servers], timeout)
        return
    texts = device.removeprefix(SCHEME).split(",")
    found = []
    for address in map(Address.of, texts):
        found += tracked(address) if address.tracker else [address]
    if count is not None and count > len(found):
        raise VTAError(
            f"{count:,} devices of {device}; it has {len(found):,}; start further servers, or ask "
            "for fewer"
        )
    yield DevicePool(found[:count], timeout)
