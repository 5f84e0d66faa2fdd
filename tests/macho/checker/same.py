"""Compares two images that must be the same program in the same layout: same.py LINKED RELOCATED

Every section must hold the same bytes, except `__unwind_info`, whose meaning is compared at each function. Symbols, exports,
function starts, fixups, entry and initialisers are compared by meaning, as writers may pack them differently. Properties
of one link are ignored: identity, signature, the place of data after a table of another size.
"""

import pathlib
import sys

import tables
from fixups import fixups
from image import Image

LIMIT = 5


def differences(left, right):
    """A sentence for each difference."""
    ours = {(section.segment, section.name): section for section in right.sections()}
    theirs = {(section.segment, section.name): section for section in left.sections()}
    if list(ours) != list(theirs):
        yield f"sections: {list(theirs)} and {list(ours)}"
        return
    for names, one in theirs.items():
        other = ours[names]
        if names == ("__TEXT", "__unwind_info"):
            continue
        if (one.address, one.size) != (other.address, other.size):
            yield f"{','.join(names)} at {one.address:#x} of {one.size} bytes and at {other.address:#x} of {other.size} bytes"
        elif one.kind not in (1, 0x12) and left.content(one) != right.content(other):
            yield from bytes_that_differ(names, one, left.content(one), right.content(other))
    starts = left.function_starts()
    if starts != right.function_starts():
        yield f"function starts: {listed(set(starts) ^ set(right.function_starts()))}"
    if left.entry() != right.entry():
        yield f"entry at {left.entry():#x} and at {right.entry():#x}"
    if left.exports() != right.exports():
        yield f"exports: {listed(name for name, _ in left.exports().items() ^ right.exports().items())}"
    one, other = tables.symbols(left), tables.symbols(right)
    if sorted(one) != sorted(other):
        yield f"symbols: {listed(f'{s[0]} {s[1]:#x} {s[4]:#x}' for s in set(one) ^ set(other))}"
    if set(fixups(left)) != set(fixups(right)):
        yield f"fixups: {listed(set(fixups(left)) ^ set(fixups(right)))}"
    if tables.initialisers(left) != tables.initialisers(right):
        yield "initialisers"
    if sorted(tables.frame_starts(left).values()) != sorted(tables.frame_starts(right).values()):
        yield "frames of __eh_frame"
    one, other = tables.UnwindInfo(left), tables.UnwindInfo(right)
    for start in starts:
        if meaning(left, one, start) != meaning(right, other, start):
            yield f"unwinding of {start:#x}: {one.at(start)} and {other.at(start)}"


# Both architectures have a mode that leaves the frame to DWARF; its operand is the place of the FDE.
DWARF = {0x0100000C: 3, 0x01000007: 4}


def meaning(image, unwind, start):
    """How a function is unwound, with the code range of its FDE instead of the FDE's place."""
    found = unwind.at(start)
    if found.encoding >> 24 & 0xF != DWARF[int.from_bytes(image.data[4:8], "little")]:
        return found
    return found._replace(encoding=tables.frame_starts(image).get(found.encoding & 0xFFFFFF))


def bytes_that_differ(names, section, left, right):
    """The first places where two contents differ."""
    count = 0
    for offset in range(0, len(left), 4):
        one, other = left[offset : offset + 4], right[offset : offset + 4]
        if one != other:
            count += 1
            if count <= LIMIT:
                yield f"{','.join(names)} at {section.address + offset:#x}: {one.hex()} and {other.hex()}"
    yield f"{','.join(names)}: {count} words differ"


def listed(items):
    """The first few of some."""
    texts = sorted(f"{item:#x}" if isinstance(item, int) else str(item) for item in items)
    return ", ".join(texts[:LIMIT]) + (f" and {len(texts) - LIMIT} more" if len(texts) > LIMIT else "")


def main():
    """Prints what differs; 1 when something does."""
    architecture = sys.argv[3] if len(sys.argv) > 3 else "arm64"
    left, right = (Image(pathlib.Path(path).read_bytes(), architecture) for path in sys.argv[1:3])
    found = list(differences(left, right))
    print("\n".join(found[:30]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
