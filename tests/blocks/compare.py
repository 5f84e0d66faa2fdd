#!/usr/bin/env python3
"""What startups of programs, or of a library of theirs, cost with each layout: the original, the best one of functions, blocks,
and both.

For each program: some of the invocations in its list are recorded with their basic blocks and make the layouts, the others are
left out and judge them. Figures are summed over invocations. Those of the kernel are read by `reorder measure`; the others are
simulated from a recording of the invocation, which no layout was made from where the invocation is left out. Images are on the
disk of TMPDIR: how far it reads ahead decides the kernel's major faults.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import library_pages

LAYOUTS = ("functions", "blocks", "both")
# What `reorder apply` is given for a layout, if that is not its name.
WORDS = {"assumed": ("blocks", "--assume-pointers")}
SETS = ("recorded", "left out")

MAPPED = "pages of 4 KiB mapped at the end"
AREA = "area under the fault curve of 4 KiB pages"
# The figure, and who says it.
FIGURES = {
    "pages of 4 KiB": "kernel",
    "major faults": "kernel",
    MAPPED: "kernel",
    "pages of 16 KiB": "simulated",
    "faults, fault-around of 64 KiB": "simulated",
    "faults, read-ahead of 128 KiB": "simulated",
    AREA: "simulated",
}
MODELS = {
    "linux-4k": None,
    "android-16k": "pages of 16 KiB",
    "linux-4k-faultaround-64k": "faults, fault-around of 64 KiB",
    "linux-6.17-readahead-128k": "faults, read-ahead of 128 KiB",
}


def run(command, directory=None, statuses=(0,), environment=None):
    """The output of a command that must succeed."""
    streams = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    result = subprocess.run(command, cwd=directory, env={**os.environ, **(environment or {})}, **streams)
    if result.returncode not in statuses:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


class Program:
    """One program, its recordings and its layouts."""

    def __init__(self, reorder, layouts, paths, invocations, passes, directory, work, is_simulated):
        self.layouts = layouts
        # The program, and the image whose layouts are compared: itself, or a library that it loads.
        self.program, self.path = paths
        self.reorder, self.invocations, self.passes = reorder, invocations, passes
        self.directory, self.work, self.is_simulated = directory, work, is_simulated
        self.read_ahead = None
        for kind in SETS:
            for number, words in self.of(kind):
                trace = self.trace(kind, number)
                self.record(trace, words)
                if not trace.is_dir():
                    sys.exit(f"{self.program.name} {' '.join(words)}: nothing was recorded")
        self.images = {layout: self.path_of(layout) for layout in layouts}
        for layout, image in self.images.items():
            command = [reorder, "apply", self.path, "-t", work / "recorded", "--layout", *WORDS.get(layout, (layout,)), "-o", image]
            image.parent.mkdir(exist_ok=True)
            run(command, directory)

    @property
    def is_library(self):
        return self.program != self.path

    def record(self, trace, words):
        command = [self.reorder, "record", "-q", "--blocks", "--passes", self.passes, "-o", trace, *(["--image", self.path] if self.is_library else [])]
        environment = {"LD_LIBRARY_PATH": str(self.path.parent)} if self.is_library else {}
        # Some invocations end with another status than 0, which `record` passes on.
        run([*command, "--", self.program, *words], self.directory, range(256), environment)

    def path_of(self, layout):
        """Libraries keep their name, by which programs load them."""
        return self.path.parent.parent / layout / self.path.name if self.is_library else self.path.with_name(layout)

    def of(self, kind):
        return enumerate(words for one, words in self.invocations if one == kind)

    def trace(self, kind, number):
        return self.work / kind.replace(" ", "-") / str(number)

    def json(self, *command, statuses=(0,)):
        return json.loads(run([self.reorder, "--format", "json", *command], self.directory, statuses))

    def measured(self, layout, words):
        """Of the original and the new image: pages touched, major faults and pages mapped."""
        if self.is_library:
            self.read_ahead = int(library_pages.read_ahead_setting(self.path).read_text()) * 1024
            sides = (library_pages.measured([self.program, *words], self.directory, image) for image in (self.path, self.images[layout]))
            return [dict(zip(("pages of 4 KiB", "major faults", MAPPED), side)) for side in sides]
        report = self.json("measure", "--runs", "2", "--time-limit", "600", self.path, self.images[layout], "--", *words)
        measurement = report["measurements"][0]
        self.read_ahead = measurement["read_ahead_bytes"]
        figures = {figure["kind"]: figure for figure in measurement["figures"]}
        kinds = {"pages of 4 KiB": "text_pages_touched", "major faults": "major_faults", MAPPED: "text_pages_mapped"}
        return [{name: figures[kind][side]["median"] for name, kind in kinds.items()} for side in ("old", "new")]

    def simulated(self, layout, trace):
        """Of the original and the new program: faults by the models."""
        if not self.is_simulated:
            return ({}, {})
        models = [word for model in MODELS for word in ("--model", model)]
        report = self.json("simulate", self.path, self.images[layout], "-t", trace, *models)
        sides = ({}, {})
        for faults in report["totals"]:
            for side, key in zip(sides, ("faults", "new_faults")):
                if MODELS[faults["model"]]:
                    side[MODELS[faults["model"]]] = faults[key]
                else:
                    side[AREA] = sum(point[key] for point in faults["curve"]) / len(faults["curve"])
        return sides

    def costs(self, kind):
        """By layout: each figure, summed over the invocations."""
        figures = [figure for figure, witness in FIGURES.items() if self.is_simulated or witness == "kernel"]
        costs = {layout: dict.fromkeys(figures, 0) for layout in ("original", *self.layouts)}
        for number, words in self.of(kind):
            for layout in self.layouts:
                for old, new in (self.measured(layout, words), self.simulated(layout, self.trace(kind, number))):
                    for figure, value in new.items():
                        costs[layout][figure] += value
                    if layout == self.layouts[0]:
                        for figure, value in old.items():
                            costs["original"][figure] += value
        return costs

    def agreements(self, layout):
        """Predicted pages and touched ones of each invocation, and the share of pages that only one side has."""
        for kind in SETS if self.is_simulated and not self.is_library else ():
            for number, words in self.of(kind):
                command = ("measure", self.path, self.images[layout], "-t", self.trace(kind, number), "--agreement")
                report = self.json(*command, "--", *words, statuses=(0, 1))
                # The page cache also has the pages of processes that the program forks, which the trace predicts, too.
                if not report["page_cache"]:
                    sys.exit(f"{self.path.name}: its pages were in memory before it started, so they cannot be counted")
                yield report["predicted_pages"], report["page_cache"]["pages"], report["difference_percent"]

    def bounds(self):
        """Simulated pages of recorded runs with blocks, and the bounds of blocks and of functions for all of them together; pages
        and bound of copies alone."""
        if not self.is_simulated:
            return None
        trace = self.work / "recorded"
        total = self.json("simulate", self.path, self.images["blocks"], "-t", trace, "--model", "linux-4k")["totals"][0]
        copies = total.get("copies", {"faults": 0, "bound_faults": 0})
        bounds = total["block_bound_faults"], total["lower_bound_faults"]
        return total["new_faults"], *bounds, copies["faults"], copies["bound_faults"]


def read_list(path):
    """The directory's set-up command, the folder that the program needs around it, the library that is laid out in its place,
    the passes of each recording, and invocations: their kind and words. Folder and library are None where there is none.

    `{here}` in a word stands for the directory that the set-up command filled.
    """
    setup, folder, library, passes, invocations = None, None, None, "1", []
    for line in path.read_text().splitlines():
        kind, _, rest = line.partition(": ")
        if kind == "setup":
            setup = rest
        elif kind == "folder":
            folder = pathlib.Path(rest)
        elif kind == "library":
            library = pathlib.Path(rest)
        elif kind == "passes":
            passes = rest
        elif kind in SETS:
            invocations.append((kind, json.loads(rest)))
    return setup, folder, library, passes, invocations


def mean(values):
    """The geometric mean."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else math.nan


def ratio(new, old):
    return new / old if old else 1.0


def compared(path, arguments):
    """All figures of the program whose list is at `path`."""
    setup, folder, library, passes, invocations = read_list(path)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        directory = work / "here"
        directory.mkdir()
        if setup:
            run(["bash", "-euc", setup], directory)
        invocations = [(kind, [word.replace("{here}", str(directory)) for word in words]) for kind, words in invocations]
        place = work / "place"
        if folder:
            shutil.copytree(folder, place, symlinks=True)
        else:
            place.mkdir()
        original = place / "original"
        fetched = arguments.programs / path.name if arguments.programs else original
        installed = fetched if fetched.exists() else (folder or pathlib.Path("/usr/bin")) / path.name
        if library:
            paths = installed, original / library.name
            original.mkdir()
            shutil.copy(library.resolve(), paths[1])
        else:
            paths = original, original
            shutil.copy(installed.resolve(), original)
        program = Program(arguments.reorder, arguments.layouts, paths, invocations, passes, directory, work, not arguments.kernel_only)
        sizes = {layout: image.stat().st_size for layout, image in program.images.items()}
        return {
            "costs": {kind: program.costs(kind) for kind in SETS},
            "agreement": {layout: list(program.agreements(layout)) for layout in arguments.layouts},
            "bounds": program.bounds(),
            "grows": (sizes["blocks"] - paths[1].stat().st_size) / 1024,
            "read_ahead": program.read_ahead,
        }


def print_figure(figure, layouts, results):
    print(f"\n{figure} ({FIGURES[figure]})")
    # Images whose functions cannot move are compared with themselves.
    base = "functions" if "functions" in layouts else "original"
    others = [layout for layout in layouts if layout != base]
    titles = ["original", *layouts, *(f"{layout}/{base[0]}." for layout in others)]
    print(f"{'program':8} {'invocations':11} {' '.join(f'{title:>9}' for title in titles)}")
    ratios = {(kind, layout): [] for kind in SETS for layout in others}
    for name, result in results.items():
        for kind in SETS:
            costs = {layout: values[figure] for layout, values in result["costs"][kind].items()}
            shares = [ratio(costs[layout], costs[base]) for layout in others]
            for layout, share in zip(others, shares):
                ratios[kind, layout].append(share)
            cells = [f"{cost:9.0f}" for cost in costs.values()] + [f"{share:9.3f}" for share in shares]
            print(f"{name:8} {kind:11} {' '.join(cells)}")
    for kind in SETS:
        means = [f"{mean(ratios[kind, layout]):9.3f}" for layout in others]
        print(f"{'mean':8} {kind:11} {'':{10 * len(layouts) + 9}} {' '.join(means)}")


def print_results(layouts, results, is_simulated):
    for figure, witness in FIGURES.items():
        if is_simulated or witness == "kernel":
            print_figure(figure, layouts, results)
    sizes = {result["read_ahead"] or 0 for result in results.values()}
    print(f"\nthe disk below TMPDIR reads ahead {' or '.join(f'{size // 1024} KiB' for size in sorted(sizes))}")
    for name, result in results.items():
        print(f"with blocks, the file of {name} grows by {result['grows']:.0f} KiB")
    if not is_simulated:
        return
    print("\nsimulated pages of 4 KiB against those in the kernel's page cache, all invocations;")
    print("differing: pages that only one of the simulation and the first process has")
    print(f"{'program':8} {'layout':9} {'simulated':>9} {'kernel':>9} {'off':>8} {'differing, mean':>16} {'worst':>8}")
    for name, result in results.items():
        for layout, runs in result["agreement"].items():
            if not runs:
                continue
            predicted, touched = (sum(one[index] for one in runs) for index in (0, 1))
            shares = [one[2] for one in runs]
            off = 100 * (predicted / touched - 1)
            print(
                f"{name:8} {layout:9} {predicted:9} {touched:9} {off:+7.1f}% {sum(shares) / len(shares):15.1f}%"
                f" {max(shares):7.1f}%"
            )
    print("\nsimulated pages of recorded runs with blocks against the bounds for all of them together")
    print(
        f"{'program':8} {'pages':>7} {'of blocks':>9} {'of functions':>12} {'pages/of blocks':>16}"
        f" {'of copies alone':>15} {'bound':>7} {'pages/bound':>11}"
    )
    for name, result in results.items():
        pages, blocks, functions, faults_of_copies, bound_of_copies = result["bounds"]
        print(
            f"{name:8} {pages:7} {blocks:9} {functions:12} {ratio(pages, blocks):16.3f}"
            f" {faults_of_copies:15} {bound_of_copies:7} {ratio(faults_of_copies, bound_of_copies):11.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reorder", required=True)
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, help="`assumed` is blocks with --assume-pointers")
    parser.add_argument("--programs", type=pathlib.Path, help="where to look for programs before /usr/bin")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file, and go on from it")
    parser.add_argument(
        "--kernel-only", action="store_true", help="simulate nothing: for programs of hundreds of megabytes, or with many processes"
    )
    parser.add_argument("lists", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    known = arguments.json and arguments.json.exists()
    results = json.loads(arguments.json.read_text()) if known else {}
    results = {name: result for name, result in results.items() if (result["bounds"] is None) == arguments.kernel_only}
    for path in arguments.lists:
        if path.name not in results:
            print(f"{path.name} ...", file=sys.stderr, flush=True)
            results[path.name] = compared(path, arguments)
            if arguments.json:
                arguments.json.write_text(json.dumps(results))
    print_results(arguments.layouts, {path.name: results[path.name] for path in arguments.lists}, not arguments.kernel_only)


if __name__ == "__main__":
    main()
