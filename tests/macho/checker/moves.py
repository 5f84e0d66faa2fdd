"""The map that `reorder apply --map` writes: old and new address of each range of code."""

import bisect
import pathlib


class Moves:
    """Ranges by old address, each with its new address and size. Bytes in no range stay."""

    def __init__(self, path):
        self.ranges = []
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith("move "):
                old, new, size = (int(field, 16) for field in line.split(" ")[1:4])
                self.ranges.append((old, new, size))
        self.ranges.sort()
        self.starts = [old for old, _, _ in self.ranges]

    def new(self, address):
        """The new address of an old one."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0:
            old, new, size = self.ranges[index]
            if address < old + size:
                return address - old + new
        return address

    def unit(self, address):
        """The start of the range that contains an address, or None when the address stays."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.ranges[index][0] + self.ranges[index][2]:
            return self.ranges[index][0]
        return None

    def faults(self, start, end):
        """Why these ranges are not a permutation of the text between two addresses; empty if they are."""
        for pick in (0, 1):
            last = start
            for piece in sorted(self.ranges, key=lambda piece: piece[pick]):
                if piece[pick] < last:
                    yield f"ranges overlap at {piece[pick]:#x}"
                last = piece[pick] + piece[2]
            if last > end:
                yield f"a range ends at {last:#x}, after the end of the text"
