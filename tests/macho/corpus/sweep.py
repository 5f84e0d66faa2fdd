"""Relocates every image of a corpus and prints the results.

Usage: sweep.py REORDER CORPUS OUTPUT.tsv [--seed N] [--largest BYTES] [--only TEXT]

For each image and architecture: `reorder inspect`, a random permutation by `reorder apply`, `reorder verify`, and the
independent checker of `tests/macho/checker`. One line an image and slice, then totals on standard output. The status is 1
when a result is refuted or only one of the two proves it, or a command ends by anything but success or a refusal with a
reason.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "emulator"))

from image import ARCHITECTURES, UNIVERSAL  # noqa: E402

COLUMNS = ["package", "image", "architecture", "bytes", "functions", "functions_movable", "moved", "seconds", "result", "detail"]
# Exit status of every command for an image that it does not accept; `inspect` then has a report if it could read the file.
REFUSED = 2
LIMIT = 1800


def slices(path):
    """Architectures in a file that are tested."""
    head = path.read_bytes()[:4096]
    names = {number: name for name, number in ARCHITECTURES.items()}
    if int.from_bytes(head[:4], "big") != UNIVERSAL:
        return [names.get(int.from_bytes(head[4:8], "little"))]
    count = int.from_bytes(head[4:8], "big")
    return [names.get(int.from_bytes(head[8 + 20 * index : 12 + 20 * index], "big")) for index in range(count)]


def run(*command):
    """Status, output and errors of one command."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return None, "", f"no end within {LIMIT} s"
    return done.returncode, done.stdout, done.stderr


def one_line(text):
    """The first line of a text that is not empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300].replace("\t", " ")


def examine(reorder, path, architecture, thin, seed):
    """The fields from `functions` on."""
    arch = [] if thin else ["--arch", architecture]
    started = time.monotonic()

    def ended(result, detail, functions="", movable="", moved=""):
        return [functions, movable, moved, f"{time.monotonic() - started:.1f}", result, detail]

    status, out, errors = run(reorder, "inspect", path, "--format", "json", *arch)
    counts = {}
    if status == 0 or status == REFUSED and out.strip():
        counts = json.loads(out)
    elif status != REFUSED:
        return ended("broken", f"inspect: {status}: {one_line(errors)}")
    functions, movable = shares(counts)
    with tempfile.TemporaryDirectory() as work:
        output, moves = pathlib.Path(work) / "output", pathlib.Path(work) / "map"
        status, out, errors = run(
            reorder, "apply", path, "--strategy", "random", "--seed", seed, "-o", output, "--map", moves,
            "--most-pinned", 100, *arch,
        )
        if status != 0:
            failed = "(M20)" in errors or "os error" in errors
            kind = "refused" if status == REFUSED and not failed else "broken"
            return ended(kind, one_line(errors), functions, movable)
        moved = sum(line.startswith("move ") for line in moves.read_text().splitlines())
        checked, found, trouble = run(
            sys.executable, HERE.parent / "checker/check.py", path, output, moves, architecture
        )
        if checked != 0:
            return ended("refuted", one_line(found or trouble), functions, movable, moved)
        status, out, errors = run(reorder, "verify", path, output)
        if status != 0:
            words = " ".join((errors or out).split())[-300:]
            return ended("unverified", f"{words}; the checker: {one_line(found)}", functions, movable, moved)
        return ended("proven", one_line(found), functions, movable, moved)


def shares(counts):
    """Numbers of functions and of movable ones in the report of `inspect`, which may be on either stream."""
    found = {}

    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("functions", "functions_movable") and isinstance(inner, int):
                    found.setdefault(key, inner)
                elif key in ("functions", "functions_movable") and isinstance(inner, dict) and isinstance(inner.get("count"), int):
                    found.setdefault(key, inner["count"])
                walk(inner)
        elif isinstance(value, list):
            for inner in value[:4]:
                walk(inner)

    walk(counts)
    return found.get("functions", ""), found.get("functions_movable", "")


def main():
    """Relocates all images of the corpus."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reorder", type=pathlib.Path)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--largest", type=int, default=1 << 40)
    parser.add_argument("--only", default="")
    wanted = parser.parse_args()
    totals, functions, movable = collections.Counter(), collections.Counter(), collections.Counter()
    with wanted.output.open("w") as table:
        print("\t".join(COLUMNS), file=table)
        for path in sorted(wanted.corpus.glob("*/*"), key=lambda path: (path.stat().st_size, path)):
            if wanted.only not in str(path) or path.stat().st_size > wanted.largest:
                continue
            found = slices(path)
            for architecture in filter(None, found):
                fields = examine(wanted.reorder, path, architecture, len(found) == 1, wanted.seed)
                row = [path.parent.name, path.name, architecture, path.stat().st_size, *fields]
                print("\t".join(str(field) for field in row), file=table, flush=True)
                totals[architecture, fields[4]] += 1
                functions[architecture] += fields[0] or 0
                movable[architecture] += fields[1] or 0
    for architecture in ARCHITECTURES:
        results = {result: count for (name, result), count in sorted(totals.items()) if name == architecture}
        share = 100 * movable[architecture] / max(functions[architecture], 1)
        print(f"{architecture}: {sum(results.values())} images: {results}; {share:.2f} % of {functions[architecture]} functions movable")
    return 1 if any(result in ("refuted", "unverified", "broken") for _, result in totals) else 0


if __name__ == "__main__":
    sys.exit(main())
