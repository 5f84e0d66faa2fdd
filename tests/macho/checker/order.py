"""Gives the order that takes a relocated image back: order.py ORIGINAL RELOCATED, both with symbols.

Prints addresses of the relocated image, one a line, in the order in which the original has the same functions.
"""

import collections
import pathlib
import sys

import tables
from image import Image


def main():
    """Pairs functions by name; those of one name by their order in the table of symbols, which relocation keeps."""
    places = []
    for path in sys.argv[1:3]:
        image = Image(pathlib.Path(path).read_bytes())
        text = image.section("__TEXT", "__text")
        found = collections.defaultdict(list)
        for name, kind, _, _, value in tables.symbols(image):
            if not kind & tables.STAB and text.address <= value < text.address + text.size and kind & 0x0E == 0x0E:
                found[name].append(value)
        places.append(found)
    pairs = sorted((value, other) for name, values in places[0].items() for value, other in zip(values, places[1][name]))
    print("\n".join(f"{other:#x}" for _, other in dict(pairs).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
