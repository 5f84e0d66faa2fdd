"""Runs a Mach-O program for arm64 or x86_64 without macOS.

The program sees its arguments, an empty standard input, no files, one thread and a clock that only ticks when asked. Its
output and exit status are those of this process; 120 means that it did something unsupported.

  run.py [--arch A] [--library FILE]... [--trace FILE] [--summary FILE] [--call SCENARIO] IMAGE [ARGUMENT]...
"""

import argparse
import json
import pathlib
import sys

from image import BadImage, Image
from machine import Fault, Machine
from scenarios import SCENARIOS
from trace import Trace

FAULT = 120


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="Runs a Mach-O program without macOS.")
    parser.add_argument("--arch", choices=("arm64", "x86_64"), default="arm64")
    parser.add_argument("--runtime", type=pathlib.Path, required=True, help="what tests/macho/runtime/build has built")
    parser.add_argument("--library", type=pathlib.Path, action="append", default=[], help="a further image, loaded first")
    parser.add_argument("--trace", type=pathlib.Path, help="where the functions that ran go, one address a line")
    parser.add_argument("--summary", type=pathlib.Path, help="where the numbers of the run go, as JSON")
    parser.add_argument("--call", choices=sorted(SCENARIOS), help="calls functions of a library instead of a program")
    parser.add_argument("image", type=pathlib.Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main():
    """Loads, runs, and writes the requested files."""
    wanted = arguments()
    machine = Machine(wanted.arch)
    libraries = sorted((wanted.runtime / wanted.arch).glob("*.?*.dylib"), key=lambda path: path.name != "libSystem.B.dylib")
    status, fault = FAULT, None
    try:
        for path in [*libraries, *wanted.library]:
            machine.load(Image(path.read_bytes(), wanted.arch), path.name)
        image = Image(wanted.image.read_bytes(), wanted.arch)
        slide = machine.load(image, wanted.image.name)
        trace = Trace(machine, image, slide) if wanted.trace or wanted.summary else None
        if wanted.call:
            machine.start([str(wanted.image.name)])
            SCENARIOS[wanted.call](machine, sys.stdout)
            status = 0
        else:
            status = machine.run([wanted.image.name, *wanted.arguments])
    except (Fault, BadImage) as error:
        fault = str(error)
        print(f"emulator: {error}", file=sys.stderr)
        for symbol in sorted(machine.called_missing):
            print(f"emulator: no library defines {symbol}", file=sys.stderr)
    if wanted.trace:
        wanted.trace.write_text("".join(f"{address:#x}\n" for address in trace.functions()))
    if wanted.summary:
        numbers = {"status": status, "fault": fault, "missing": sorted(machine.called_missing)}
        numbers |= {"text_pages": len(trace.pages()), "functions": len(trace.functions())}
        wanted.summary.write_text(json.dumps(numbers, indent=2) + "\n")
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
