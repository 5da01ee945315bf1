"""What is stored and read in another way than the model says: parts, and orders of channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import relax

from vta_byoc.partitioning.entry import Match, Plan


@dataclass(frozen=True)
class Part:
    """A range of channels of a tensor, stored by itself.

    Attributes:
        var: the tensor.
        first, last: the channels, ``last`` not among them.
        match: the convolution of these filters; None where the tensor is stored whole, as it is.
    """

    var: relax.Var
    first: int
    last: int
    match: Match | None = None

    @property
    def channels(self) -> range:
        """Numbers of its channels in the tensor."""
        return range(self.first, self.last)


@dataclass(frozen=True)
class Order:
    """A tensor of moved channels as it is read.

    Attributes:
        pieces: what lies side by side, each in blocks of its own.
        copied: parts that hold the channels behind them.
        copy: how these are copied together; None where there are none.
        joined: the whole; None of one piece.
        lanes: the channel of the tensor in each lane, or NONE.
    """

    pieces: tuple[Part, ...]
    copied: tuple[Part, ...]
    copy: Plan | None
    joined: Plan | None
    lanes: tuple[int, ...]


@dataclass
class Routes:
    """What is stored and read in another way than the model says.

    Attributes:
        parts: of each tensor that is stored in parts.
        orders: of each tensor that convolutions read in another order of its channels.
        readers: the convolutions that read one, or compute one, by their result.
        reordered: results of convolutions that are stored in another order of their channels.
        moves: results of the operators that nothing carries out; those in ``orders`` are among
            them.
    """

    parts: dict[relax.Var, list[Part]] = field(default_factory=dict)
    orders: dict[relax.Var, Order] = field(default_factory=dict)
    readers: dict[relax.Var, Match] = field(default_factory=dict)
    reordered: set[relax.Var] = field(default_factory=set)
    moves: set[relax.Var] = field(default_factory=set)

    def add(self, other: Routes) -> None:
        """Take ``other``'s, too."""
        self.parts |= other.parts
        self.orders |= other.orders
        self.readers |= other.readers
        self.reordered |= other.reordered
        self.moves |= other.moves
