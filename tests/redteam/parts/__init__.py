"""The parts of generated programs. Each module registers writers; a writer takes choices and a prefix for its names."""

import collections
import importlib
import pathlib

Part = collections.namedtuple("Part", "write languages weight")
PARTS = {}


def part(languages="c cpp", weight=2):
    """Registers a writer by the name of its function."""
    def register(write):
        PARTS[write.__name__] = Part(write, languages.split(), weight)
        return write
    return register


for path in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py")):
    importlib.import_module(f"parts.{path.stem}")
