"""Random networks of independent regions, with float operators that hold some of them up."""

from __future__ import annotations

import onnx
from small_models import Net

CHANNELS, SIZE = 4, 5
HOST = ("Sigmoid", "Tanh", "Softmax", "Softplus", "Exp")
"""Operators that the CPU computes, a softmax over channels among them."""


def branches(seed: int, count: int = 3) -> onnx.ModelProto:
    """``count`` branches of one input, each of convolutions and operators of the host; some end
    in results of their own, the others are added up in a random order."""
    net = Net(seed, x=(1, CHANNELS, SIZE, SIZE))
    ends = [_branch(net, f"b{number}") for number in range(count)]
    net.rng.shuffle(ends)
    total = ends[0]
    for number, end in enumerate(ends[1:-1]):
        total = net.node("Add", total, end, name=f"sum{number}")
    return net.model(total, ends[-1])


def _branch(net: Net, name: str) -> str:
    value = "x"
    for step in range(int(net.rng.integers(1, 3))):
        value = net.conv(value, CHANNELS, CHANNELS, 1, name=f"{name}_conv{step}")
        if net.rng.random() < 0.6:
            host = str(net.rng.choice(HOST))
            attrs = {"axis": 1} if host == "Softmax" else {}
            value = net.node(host, value, name=f"{name}_host{step}", **attrs)
    return value


def late_reader() -> onnx.ModelProto:
    """Two results of regions that float operators hold back until other regions have run."""
    net = Net(1, x=(1, CHANNELS, SIZE, SIZE))
    first = net.conv("x", CHANNELS, CHANNELS, 1, name="a")
    late = net.conv(net.node("Softmax", first, axis=1), CHANNELS, CHANNELS, 1, name="b")
    other = net.conv("x", CHANNELS, CHANNELS, 1, name="c")
    last = net.conv(net.node("Tanh", other), CHANNELS, CHANNELS, 1, name="d")
    return net.model(net.node("Add", late, last, name="y"), other)
