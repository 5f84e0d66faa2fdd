#!/usr/bin/env python3
"""Text pages that startups touch: the original, the best layout of functions, blocks, and both.

For each program: half of the invocations in its list are recorded with their basic blocks, the others are left out. Every
layout is made from the recorded ones. Pages are those that the kernel reports (`reorder measure`), summed over invocations.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

LAYOUTS = ("functions", "blocks", "both")


def run(command, directory=None):
    """The output of a command that must succeed."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=directory, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def touched(reorder, original, new, words, directory):
    """Text pages that the original and the new program touch; None if the kernel does not tell."""
    command = [reorder, "--format", "json", "measure", "--runs", "1", original, new, "--", *words]
    report = json.loads(run(command, directory))
    for figure in report["measurements"][0]["figures"]:
        if figure["kind"] == "text_pages_touched":
            return int(figure["old"]["median"]), int(figure["new"]["median"])
    return None


def compare(reorder, program, invocations, directory, work):
    """A row for each set of invocations: pages of the original and of each layout."""
    traces = work / "traces"
    recorded = [words for kind, words in invocations if kind == "recorded"]
    for number, words in enumerate(recorded):
        run([reorder, "record", "--blocks", "-o", traces / str(number), "--", program, *words], directory)
    images = {}
    for layout in LAYOUTS:
        images[layout] = work / layout
        run([reorder, "apply", program, "-t", traces, "--layout", layout, "-o", images[layout]], directory)
    rows = {}
    for wanted in ("recorded", "left out"):
        pages = {"original": 0, **dict.fromkeys(LAYOUTS, 0)}
        for _, words in (one for one in invocations if one[0] == wanted):
            for position, layout in enumerate(LAYOUTS):
                old, new = touched(reorder, program, images[layout], words, directory)
                pages["original"] += old if position == 0 else 0
                pages[layout] += new
        rows[wanted] = pages
    sizes = {layout: image.stat().st_size for layout, image in images.items()}
    return rows, sizes


def read_list(path):
    """The directory's set-up command, and invocations: `recorded` or `left out`, and words."""
    setup, invocations = None, []
    for line in path.read_text().splitlines():
        kind, _, rest = line.partition(": ")
        if kind == "setup":
            setup = rest
        elif kind in ("recorded", "left out"):
            invocations.append((kind, json.loads(rest)))
    return setup, invocations


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reorder", required=True)
    parser.add_argument("lists", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    ratios = {(wanted, layout): [] for wanted in ("recorded", "left out") for layout in LAYOUTS[1:]}
    print(f"{'program':10} {'invocations':12} {'original':>8} {'functions':>9} {'blocks':>7} {'both':>7}  blocks/functions  both/functions")
    for path in arguments.lists:
        setup, invocations = read_list(path)
        program = f"/usr/bin/{path.name}"
        with tempfile.TemporaryDirectory() as temporary:
            work = pathlib.Path(temporary)
            directory = work / "here"
            directory.mkdir()
            if setup:
                run(["bash", "-euc", setup], directory)
            rows, sizes = compare(arguments.reorder, program, invocations, directory, work)
        for wanted, pages in rows.items():
            for layout in LAYOUTS[1:]:
                ratios[wanted, layout].append(pages[layout] / pages["functions"])
            print(
                f"{path.name:10} {wanted:12} {pages['original']:8} {pages['functions']:9} {pages['blocks']:7}"
                f" {pages['both']:7} {pages['blocks'] / pages['functions']:17.3f} {pages['both'] / pages['functions']:15.3f}",
                flush=True,
            )
        growth = (sizes["blocks"] - sizes["functions"]) / 1024
        print(f"{path.name:10} grows by {growth:.0f} KiB with blocks", flush=True)
    for (wanted, layout), values in ratios.items():
        mean = math.exp(sum(math.log(value) for value in values) / len(values))
        print(f"geometric mean of {layout}/functions, {wanted}: {mean:.3f}")


if __name__ == "__main__":
    main()
