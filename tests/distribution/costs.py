#!/usr/bin/env python3
"""What the caution of one build of `reorder` costs against another: functions that may move, why others stay, pages of startups.

Usage: costs.py BEFORE AFTER [--programs NAME…] [--only TEXT] DIRECTORY…

BEFORE and AFTER are two builds of the command. Both inspect every ET_DYN image for x86-64 below the directories. Then both record
some startups of programs that tests/blocks lists, and move functions by their own traces. AFTER counts the pages of 4 KiB that the
startups need with both layouts, by its own traces. Ends with status 1 if a command breaks.
"""

import argparse
import collections
import json
import pathlib
import shutil
import sys
import tempfile

import sweep

sys.path.append(str(pathlib.Path(__file__).parent.parent / "blocks"))
import compare  # noqa: E402

# Exit status of a refusal in builds before 25 November 2026.
EARLIER_REFUSED = 1

# Startups of one program that make its layout.
RECORDED = 4


def inspected(reorder, path, refusals=(sweep.REFUSED,)):
    """The report of an image, or the code of its refusal; `refusals` are the statuses of one."""
    done = sweep.Run(reorder, "inspect", path, "--format", "json")
    if done.status not in (0, *refusals) or "panicked" in done.errors:
        sys.exit(f"{path}: {done.words()}")
    if not done.output.strip():
        return None, sweep.code_of(done.errors) or "no image"
    facts = json.loads(done.output)
    return (facts, None) if facts["is_movable"] else (None, facts["refusal"]["code"])


class Tally:
    """Sums of one build over all images."""

    def __init__(self):
        self.movable = self.functions = 0
        self.pins, self.refusals = collections.Counter(), collections.Counter()

    def add(self, facts):
        self.functions += facts["functions"]
        self.movable += facts["functions_movable"]
        self.pins.update(facts["pins_by_reason"])


def compare_images(builds, paths):
    """Prints, for the images that both builds accept, what may move and why the rest stays; then what each refuses."""
    tallies, accepted = [Tally() for _ in builds], 0
    for path in paths:
        before, after = builds
        reports = [inspected(before, path, (sweep.REFUSED, EARLIER_REFUSED)), inspected(after, path)]
        for tally, (_, refusal) in zip(tallies, reports):
            if refusal:
                tally.refusals[refusal] += 1
        if [refusal for _, refusal in reports] != [None, None]:
            if reports[0][1] != reports[1][1]:
                print(f"refused {reports[0][1] or 'no'} -> {reports[1][1] or 'no'}: {path}")
            continue
        accepted += 1
        for tally, (facts, _) in zip(tallies, reports):
            tally.add(facts)
    before, after = tallies
    print(f"{accepted} of {len(paths)} images are accepted by both; functions {before.functions} -> {after.functions}")
    print(f"movable: {before.movable} ({sweep.share(before.movable, before.functions):.2f} %)"
          f" -> {after.movable} ({sweep.share(after.movable, after.functions):.2f} %)")
    print("functions that stay, by reason:")
    for reason in sorted(set(before.pins) | set(after.pins), key=lambda reason: before.pins[reason] - after.pins[reason]):
        print(f"  {before.pins[reason]:7} -> {after.pins[reason]:7}  {reason}")
    for name, tally in (("before", before), ("after", after)):
        print(f"refused {name}: " + ", ".join(f"{code} {count}" for code, count in tally.refusals.most_common()))


def pages(builds, path):
    """Pages that recorded startups of a program need with the layout of each build."""
    setup, folder, library, _, invocations = compare.read_list(path)
    if folder or library:
        sys.exit(f"costs.py: {path.name} needs a folder around it, or its code is in a library; take another program")
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        directory, original = work / "here", work / path.name
        directory.mkdir()
        if setup:
            compare.run(["bash", "-euc", setup], directory)
        shutil.copy(pathlib.Path(f"/usr/bin/{path.name}").resolve(), original)
        recorded = [words for kind, words in invocations if kind == "recorded"][:RECORDED]
        recorded = [[word.replace("{here}", str(directory)) for word in words] for words in recorded]
        images = []
        for at, reorder in enumerate(builds):
            for number, words in enumerate(recorded):
                compare.run([reorder, "record", "-q", "-o", work / f"traces{at}" / str(number), "--", original, *words], directory, range(256))
            images.append(work / f"image{at}")
            compare.run([reorder, "apply", original, "-t", work / f"traces{at}", "-o", images[-1]], directory)
        counts = []
        for image in images:
            words = ["--format", "json", "simulate", original, image, "-t", work / "traces1", "--model", "linux-4k"]
            counts.append(json.loads(compare.run([builds[1], *words], directory))["totals"][0])
        return counts[0]["faults"], *(count["new_faults"] for count in counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("directories", type=pathlib.Path, nargs="*")
    parser.add_argument("--programs", nargs="*", default=[], metavar="NAME", help="programs of tests/blocks whose startups are compared")
    parser.add_argument("--only", default="", help="only images with this in their path")
    wanted = parser.parse_intermixed_args()
    builds = [wanted.before.resolve(), wanted.after.resolve()]
    found = [path for path in sweep.images(wanted.directories, sweep.MACHINES["x86-64"]) if wanted.only in str(path)]
    if found:
        compare_images(builds, found)
    for name in wanted.programs:
        if not pathlib.Path("/usr/bin", name).exists():
            sys.exit(f"costs.py: {name} is not installed")
        original, before, after = pages(builds, pathlib.Path(__file__).parent.parent / "blocks" / name)
        print(f"pages of recorded startups, {name}: link order {original}, {before} -> {after}", flush=True)


if __name__ == "__main__":
    main()
