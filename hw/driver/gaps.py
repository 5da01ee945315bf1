"""Places in one block of memory: first fit, by address."""

from __future__ import annotations


class Gaps:
    """Hands out parts of `size` bytes that begin at physical address `address`."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self._taken: list[tuple[int, int]] = []

    def take(self, nbytes: int, align: int) -> int:
        """The offset of a part whose address is a multiple of `align`.

        Raises:
            MemoryError: no gap is large enough.
        """
        begin = 0
        for taken, end in [*sorted(self._taken), (self.size, 0)]:
            start = -(-(self.address + begin) // align) * align - self.address
            if start + nbytes <= taken:
                self._taken.append((start, start + nbytes))
                return start
            begin = end
        raise MemoryError(f"the block has {self.size:,} bytes in {len(self._taken)} parts")

    def give_back(self, offset: int, nbytes: int) -> None:
        """The part is free again."""
        self._taken.remove((offset, offset + nbytes))

    @property
    def end(self) -> int:
        """Where the last part ends; 0 where nothing is taken."""
        return max((end for _, end in self._taken), default=0)
