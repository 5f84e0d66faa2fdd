"""Permutes every ET_DYN image below some directories and prints the results.

Usage: sweep.py REORDER TABLE.tsv [--seed N] [--blocks] [--machine x86-64|aarch64] [--least N] [--resume] [--only TEXT] DIRECTORY…

With `--blocks` no function moves, but a random half of all basic blocks is copied. For each image: `reorder inspect --all`, a random permutation by `reorder apply`, which verifies, and `reorder verify` once
more as a separate process. One line an image in TABLE.tsv, one line a pinned function in TABLE.pins.tsv, then totals on
standard output. The status is 1 when a command ends by anything but success or a refusal with a reason, when
verification fails, when fewer than `--least` images were found, or when less than 99 % of the functions may move.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

COLUMNS = [
    "image", "bytes", "functions", "movable", "moved", "function_bytes", "movable_bytes", "result", "code", "detail",
    "apply_seconds", "apply_peak_kib", "verify_seconds",
]
PIN_COLUMNS = ["image", "function", "address", "bytes", "reason", "evidence"]
MACHINES = {"x86-64": 62, "aarch64": 183}
ET_DYN = 3
# Exit status for an image that is refused; `inspect` then has a report, and has none of a file that is no image.
REFUSED = 2
# The largest image of a desktop takes seconds; a command that takes this long on a busy system hangs.
LIMIT_SECONDS = 1200
TIMED_OUT = 124
# Codes by which the tool reports an error of its own.
OWN_FAULTS = {"R16"}
# The code of images with debug information, without an option that says what to do with it.
DEBUG_INFORMATION = "R10"
LEAST_MOVABLE_PERCENT = 99


def is_image(path, machine):
    """Whether this is a 64-bit ET_DYN file for the processor."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    if len(head) < 20 or head[:6] != b"\x7fELF\x02\x01":
        return False
    kind, found = int.from_bytes(head[16:18], "little"), int.from_bytes(head[18:20], "little")
    return kind == ET_DYN and found == machine


def images(directories, machine):
    """Images below the directories, each content once, from small to large."""
    digests, found = set(), []
    for directory in directories:
        for folder, _, names in os.walk(directory):
            # Split-off debug information has headers of images and no code.
            if "/lib/debug" in folder:
                continue
            for name in names:
                path = pathlib.Path(folder, name)
                if path.is_symlink() or not path.is_file() or not is_image(path, machine):
                    continue
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").digest()
                if digest not in digests:
                    digests.add(digest)
                    found.append((path.stat().st_size, path))
    return [path for _, path in sorted(found)]


class Run:
    """One command that has ended."""

    def __init__(self, *command):
        with tempfile.NamedTemporaryFile("r") as figures:
            timed = ["/usr/bin/time", "-q", "-o", figures.name, "-f", "%e %M", "timeout", str(LIMIT_SECONDS)]
            done = subprocess.run([*timed, *map(str, command)], capture_output=True, text=True, errors="replace", check=False)
            words = figures.read().split()
        self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr
        self.seconds, self.peak_kib = (words + ["", ""])[:2]

    def words(self):
        """Its message on one line."""
        if self.status == TIMED_OUT:
            return f"no end within {LIMIT_SECONDS} s"
        return " ".join((self.errors or self.output).split())[:400]


def code_of(text):
    """The code in the text of a refusal, or an empty string."""
    return text.partition("refused (")[2].partition(")")[0]


def pins_of(path, facts):
    """One line for each function that a report lists as pinned."""
    return [[path, pin["name"], pin["address"], pin["size_bytes"], pin["reason"], pin["evidence"]] for pin in facts["pinned"]]


def examine(reorder, path, seed, layout):
    """The fields of an image's line by name, and its pinned functions."""
    row = dict.fromkeys(COLUMNS, "") | {"image": path, "bytes": path.stat().st_size}
    inspected = Run(reorder, "inspect", path, "--all", "--format", "json")
    has_report = inspected.status == 0 or inspected.status == REFUSED and inspected.output.strip()
    if not has_report:
        # Files that are not images, such as those without code, are told apart from a broken command by the message.
        kind = "refused" if inspected.status == REFUSED and "panicked" not in inspected.errors else "broken"
        return row | {"result": kind, "code": code_of(inspected.words()) or "error", "detail": inspected.words()}, []
    facts = json.loads(inspected.output)
    debug, pins = [], []
    if facts["is_movable"]:
        row |= {"function_bytes": facts["function_bytes"], "functions": facts["functions"], "movable": facts["functions_movable"]}
        pins = pins_of(path, facts)
    elif facts["refusal"]["code"] == DEBUG_INFORMATION:
        row["detail"], debug = "with --debug drop", ["--debug", "drop"]
    else:
        refusal = facts["refusal"]
        return row | {"result": "refused", "code": refusal["code"], "detail": refusal["reason"]}, []
    with tempfile.TemporaryDirectory() as work:
        output = pathlib.Path(work, "output")
        applied = Run(reorder, "apply", path, "--strategy", "random", "--seed", seed, *layout, "-o", output, "--format", "json", *debug)
        row |= {"apply_seconds": applied.seconds, "apply_peak_kib": applied.peak_kib}
        if applied.status != 0:
            code = code_of(applied.words())
            kind = "refused" if applied.status == REFUSED and code and code not in OWN_FAULTS else "broken"
            return row | {"result": kind, "code": code, "detail": applied.words()}, pins
        facts = json.loads(applied.output)
        row |= {"functions": facts["functions"], "movable": facts["functions_movable"], "moved": facts["functions_moved"]}
        if layout:
            row |= {"movable": facts["functions"], "moved": facts["clones"]["functions"]}
        pins = pins_of(path, facts)
        if row["function_bytes"]:
            row["movable_bytes"] = row["function_bytes"] - sum(pin["size_bytes"] for pin in facts["pinned"])
        verified = Run(reorder, "verify", path, output)
        row["verify_seconds"] = verified.seconds
        if verified.status != 0:
            return row | {"result": "unverified", "detail": verified.words()}, pins
    return row | {"result": "proven"}, pins


def read(path):
    """The lines of a table as dictionaries."""
    if not path.exists():
        return []
    heads, *lines = path.read_text().splitlines() or [""]
    return [dict(zip(heads.split("\t"), line.split("\t"), strict=False)) for line in lines]


def line(fields):
    """One line of a table."""
    return "\t".join(str(field).replace("\t", " ").replace("\n", " ") for field in fields)


def sweep(wanted, table_path, pins_path):
    """Permutes all images and writes both tables."""
    known = {row["image"] for row in read(table_path)} if wanted.resume else set()
    mode = "a" if known else "w"
    with table_path.open(mode) as table, pins_path.open(mode) as pins_table:
        if not known:
            print(line(COLUMNS), file=table)
            print(line(PIN_COLUMNS), file=pins_table)
        for path in images(wanted.directories, MACHINES[wanted.machine]):
            if str(path) in known or wanted.only not in str(path):
                continue
            row, pins = examine(wanted.reorder, path, wanted.seed, ["--layout", "blocks"] if wanted.blocks else [])
            for pin in pins:
                print(line(pin), file=pins_table)
            pins_table.flush()
            print(line(row[column] for column in COLUMNS), file=table, flush=True)


def share(part, whole):
    """A share in percent."""
    return 100 * part / whole if whole else 0.0


def total(rows, column):
    """The sum of a column; refused images have empty fields."""
    return sum(int(row[column] or 0) for row in rows)


def summary(rows, pins):
    """Prints the totals; gives the share of functions that may move, in percent."""
    results = collections.Counter(row["result"] for row in rows)
    print(f"{len(rows)} images, {total(rows, 'bytes') / 1e6:.0f} MB: " + ", ".join(f"{n} {name}" for name, n in results.most_common()))
    accepted = [row for row in rows if row["functions"]]
    functions, movable, moved = (total(accepted, column) for column in ("functions", "movable", "moved"))
    print(f"functions: {functions}, movable {movable} ({share(movable, functions):.3f} %), moved {moved} ({share(moved, functions):.3f} %)")
    measured = [row for row in accepted if row["function_bytes"] and row["movable_bytes"]]
    size, movable_size = total(measured, "function_bytes"), total(measured, "movable_bytes")
    print(f"bytes of functions: {size}, movable {movable_size} ({share(movable_size, size):.3f} %)")
    shares = sorted(share(int(row["movable"]), int(row["functions"])) for row in accepted if int(row["functions"]))
    if shares:
        at = {name: shares[min(int(len(shares) * part), len(shares) - 1)] for name, part in (("1st", 0.01), ("5th", 0.05), ("10th", 0.1), ("50th", 0.5))}
        print("movable share by image, percentiles: " + ", ".join(f"{name} {value:.2f} %" for name, value in at.items()))
        steps = {bound: sum(value >= bound for value in shares) for bound in (100, 99.9, 99, 95, 90, 50)}
        print("images with at least: " + ", ".join(f"{bound} %: {count}" for bound, count in steps.items()))
    seconds = sum(float(row["apply_seconds"] or 0) for row in rows)
    largest = max(rows, key=lambda row: int(row["bytes"]) if row["apply_peak_kib"] else 0, default=None)
    print(f"apply: {seconds:.0f} s in all")
    if largest and largest["apply_peak_kib"]:
        ratio = int(largest["apply_peak_kib"]) * 1024 / int(largest["bytes"])
        print(f"the largest, {largest['image']}: {largest['apply_seconds']} s, {ratio:.2f} times the file in memory")
    print("\nrefused, by code:")
    by_code = collections.defaultdict(list)
    for row in rows:
        if row["result"] != "proven":
            by_code[row["result"], row["code"]].append(row)
    for (result, code), group in sorted(by_code.items(), key=lambda pair: -len(pair[1])):
        print(f"  {result} {code}: {len(group)} images, {total(group, 'bytes') / 1e6:.1f} MB")
        for row in group[:40]:
            print(f"    {row['image']}: {row['detail'][:160]}")
    print("\npins, by reason: functions, bytes, images; examples: image function evidence")
    by_reason = collections.defaultdict(list)
    for pin in pins:
        by_reason[pin["reason"]].append(pin)
    for reason, group in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        holders = collections.Counter(pin["image"] for pin in group)
        print(f"  {reason}: {len(group)}, {total(group, 'bytes')}, {len(holders)}")
        for image, count in holders.most_common(4):
            pin = next(pin for pin in group if pin["image"] == image)
            print(f"    {count} in {image}, such as {pin['function']}@{pin['address']} evidence {pin['evidence']}")
    print("\nimages with most functions that stay:")
    for row in sorted(accepted, key=lambda row: int(row["movable"]) - int(row["functions"]))[:25]:
        stay = int(row["functions"]) - int(row["movable"])
        if stay == 0:
            break
        print(f"  {stay} of {row['functions']} ({share(stay, int(row['functions'])):.2f} %) {row['image']}")
    return share(movable, functions)


def main():
    """Sweeps and sums up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reorder", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("directories", type=pathlib.Path, nargs="*")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--blocks", action="store_true", help="copy a random half of all basic blocks; no function moves")
    parser.add_argument("--machine", choices=MACHINES, default="x86-64")
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="keep the lines of the table and continue after them")
    parser.add_argument("--only", default="", help="only images with this in their path")
    wanted = parser.parse_intermixed_args()
    pins_path = wanted.table.with_suffix(".pins.tsv")
    sweep(wanted, wanted.table, pins_path)
    rows = read(wanted.table)
    movable_percent = summary(rows, read(pins_path))
    failed = [row for row in rows if row["result"] in ("broken", "unverified")]
    return 1 if failed or len(rows) < wanted.least or movable_percent < LEAST_MOVABLE_PERCENT else 0


if __name__ == "__main__":
    sys.exit(main())
