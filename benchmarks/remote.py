"""A data set over local device servers of which two are killed and one stalls; cost of a call.

    python benchmarks/remote.py [--json] [--inputs 200] [--seed 0]

Every result must be there once, in order, and equal the one of this process. The cost of a call is
that of ResNet-18 on one server beside the same in this process: medians of calls by turns.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import vta_byoc as vta
from benchmarks._figures import Figure, arguments, report
from models import resnet18
from models.digits import calibration_inputs, held_out, trained
from vta_byoc.passes.compiled import Compiled
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.device_server import LocalServer, local_servers
from vta_byoc.runtime.execute import profile
from vta_byoc.runtime.pool import POOL, DevicePool

SERVERS = 4
STALL_SECONDS = 5.0
"""After so long without an answer a device is given up."""
MOST_OVERHEAD = 15.0
REPEATS = 31


def wrong_or_lost(count: int, seed: int) -> tuple[int, DevicePool]:
    """Samples without the right result, and the pool that ran them."""
    config = vta.VTAConfig.preset("pynq")
    mod = vta.load_model(trained("resnet8", fold=0))
    calibration = [image[None] for image in calibration_inputs(fold=0, n=8)]
    qmod = vta.quantize(mod, calibration=calibration, config=config)
    images = held_out(fold=0).inputs
    samples = [images[i % len(images)][None] for i in range(count)]
    here = compile_module(qmod, config)
    wanted = [profile(here, sample).outputs[0] for sample in samples]
    pooled = compile_module(qmod, config, POOL)
    with local_servers(SERVERS) as servers:
        pool = DevicePool([server.address for server in servers], STALL_SECONDS)
        found = []
        trouble = _trouble(servers, count, np.random.default_rng(seed))
        for number, result in enumerate(pool.imap(pooled, samples)):
            found.append(result.outputs[0])
            while trouble and trouble[0][0] <= number:
                trouble.pop(0)[1]()
    wrong = sum(not np.array_equal(a, b) for a, b in zip(found, wanted, strict=False))
    return wrong + abs(len(found) - len(wanted)), pool


def _trouble(
    servers: Sequence[LocalServer], count: int, rng: np.random.Generator
) -> list[tuple[int, Callable[[], None]]]:
    """When which server is killed or stalls: behind which result, drawn."""
    victims = rng.permutation(len(servers))[:3]
    moments = sorted(rng.choice(np.arange(1, count * 3 // 4), 3, replace=False).tolist())
    signals = rng.permutation([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]).tolist()

    def send(number: int, what: int) -> Callable[[], None]:
        return lambda: os.killpg(servers[number].process.pid, what)

    made = zip(moments, victims.tolist(), signals, strict=True)
    return [(moment, send(victim, what)) for moment, victim, what in made]


def overhead_percent() -> tuple[float, float, float]:
    """Milliseconds of ResNet-18 here and on a server, and the difference in percent."""
    config = vta.VTAConfig.preset("pynq")
    mod = vta.load_model(resnet18.cached())
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")
    qmod = vta.quantize(mod, calibration=[image], config=config)
    here = compile_module(qmod, config)
    with local_servers(1) as (server,):
        there = compile_module(qmod, config, str(server.address))
        wanted, found = profile(here, image), profile(there, image)
        assert np.array_equal(wanted.outputs[0], found.outputs[0])
        assert wanted.counters == found.counters
        times: dict[str, list[float]] = {"here": [], "there": []}
        for _ in range(REPEATS):
            for name, exe in (("here", here), ("there", there)):
                times[name].append(_seconds(exe, image))
    usual = {name: 1e3 * float(np.median(values)) for name, values in times.items()}
    return usual["here"], usual["there"], 100 * (usual["there"] / usual["here"] - 1)


def _seconds(exe: Compiled, image: np.ndarray) -> float:
    begin = time.perf_counter()
    profile(exe, image)
    return time.perf_counter() - begin


def main() -> int:
    parser = arguments("A data set over device servers that die, and the cost of a call.")
    parser.add_argument("--inputs", type=int, default=200, help="samples of the data set")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed, and when")
    options = parser.parse_args()
    wrong, pool = wrong_or_lost(options.inputs, options.seed)
    here, there, overhead = overhead_percent()
    figures = [
        Figure("inputs", options.inputs, "samples"),
        Figure.at_most("results_wrong_or_lost", wrong, "samples", 0),
        Figure("redone", pool.redone, "samples"),
        Figure("devices_given_up", sum(bool(d.lost) for d in pool.devices), "devices"),
        Figure("resnet18_here", here, "ms"),
        Figure("resnet18_over_rpc", there, "ms"),
        Figure.at_most("overhead_percent", overhead, "%", MOST_OVERHEAD),
    ]
    return report("remote", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
