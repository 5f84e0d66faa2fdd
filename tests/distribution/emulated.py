"""Randomly permutes the AArch64 programs of an unpacked system and compares what they print under QEMU.

Usage: emulated.py REORDER ROOT TABLE.tsv [--seed N] [--least N] [--blocks] [--libraries] [--only TEXT]

Each program of ROOT/usr/bin is asked `--version` and `--help`, replaced by a permuted copy at the same path of a scratch
directory, and asked again; with `--libraries` once more on permuted C and C++ libraries. A program that already differs
between two runs of the original is compared by how it ends. With `--blocks` no function moves, but a random half of all basic blocks
is copied. One line a program in TABLE.tsv, totals on standard output. The
status is 1 when a program differs, `reorder` fails, or fewer than `--least` programs ran permuted.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from sweep import MACHINES, code_of, is_image, line

COLUMNS = ["program", "verdict", "functions", "movable", "moved", "detail"]
QUESTIONS = ("--version", "--help")
LIBRARIES = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1")
LIBRARY_FOLDER = "usr/lib/aarch64-linux-gnu"
# They act even when only asked for their version: on the terminal, other users, or the user's own rights.
SKIPPED = {"script", "scriptlive", "reset", "tset", "wall", "write", "mesg", "setterm", "su", "login", "newgrp", "sg", "chsh", "chfn", "passwd"}
RUN_SECONDS, APPLY_SECONDS, REPEATS = 20, 600, 3
REFUSED = 2
HAS_INTERPRETER = b"/lib/ld-linux-aarch64.so.1\0"


class Stage:
    """The directory where one program runs, under the same path before and after."""

    def __init__(self, root, scratch, name):
        self.root, self.home = root, pathlib.Path(scratch, "home")
        self.image, self.libraries = pathlib.Path(scratch, "bin", name), pathlib.Path(scratch, "libraries")
        self.image.parent.mkdir()
        self.home.mkdir()
        os.chmod(scratch, 0o755)
        os.chmod(self.home, 0o777)

    def play(self, image, libraries=None):
        """Puts an image, and a folder of libraries or none, where they are used."""
        shutil.copyfile(image, self.image)
        self.image.chmod(0o755)
        self.libraries.unlink(missing_ok=True)
        if libraries:
            self.libraries.symlink_to(libraries)

    def ask(self, question):
        """How the program ends and what it prints."""
        drop = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
        command = [*drop, "qemu-aarch64-static", "-L", self.root, "-E", f"LD_LIBRARY_PATH={self.libraries}", self.image, question]
        surroundings = {"PATH": "/usr/bin:/bin", "HOME": self.home, "TMPDIR": self.home, "LC_ALL": "C.UTF-8", "TERM": "dumb", "COLUMNS": "80"}
        try:
            done = subprocess.run(command, cwd=self.home, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True, timeout=RUN_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "no end", b"", b""
        return done.returncode, done.stdout, done.stderr

    def answers(self):
        """The answers to all questions."""
        return [self.ask(question) for question in QUESTIONS]


def permute(wanted, image, output):
    """The finished `apply`."""
    command = [wanted.reorder, "apply", image, "--strategy", "random", "--seed", wanted.seed, "-o", output, "--format", "json"]
    if wanted.blocks:
        command += ["--layout", "blocks"]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=APPLY_SECONDS, check=False)


def compare(stage, original, question, before, after):
    """The verdict on one answer, given two of the original."""
    if after in before:
        return "same", ""
    stage.play(original)
    again = [*before, *(stage.ask(question) for _ in range(REPEATS))]
    if after in again:
        return "same", ""
    if any(answer != again[0] for answer in again) and after[0] in {answer[0] for answer in again}:
        return "varies", question
    return "different", f"{question}: {before[0]} before, {after} after"[:600]


def examine(wanted, program, folders):
    """The fields of a program's line after its path."""
    with tempfile.TemporaryDirectory() as scratch:
        permuted = pathlib.Path(scratch, "permuted")
        applied = permute(wanted, program, permuted)
        if applied.returncode != 0:
            code = code_of(applied.stderr)
            refused = applied.returncode == REFUSED and code
            return ["refused" if refused else "failed", "", "", "", code if refused else " ".join(applied.stderr.split())[:400]]
        facts = json.loads(applied.stdout)
        copied = (facts.get("clones") or {}).get("functions", 0)
        counts = [facts["functions"], facts["functions_movable"], facts["functions_moved"] + copied]
        stage = Stage(wanted.root, scratch, program.name)
        stage.play(program)
        originals = [stage.answers(), stage.answers()]
        worst = ("same", "")
        for folder in folders:
            stage.play(permuted, folder)
            answers = stage.answers()
            for index, question in enumerate(QUESTIONS):
                verdict = compare(stage, program, question, [first[index] for first in originals], answers[index])
                if verdict[0] == "different":
                    return [verdict[0], *counts, ("on permuted libraries: " if folder else "") + verdict[1]]
                worst = max(worst, verdict, key=lambda found: found[0] == "varies")
        return [worst[0], *counts, worst[1]]


def main():
    """Permutes and compares all programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reorder", type=pathlib.Path)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--libraries", action="store_true")
    parser.add_argument("--only", default="")
    wanted = parser.parse_args()
    wanted.root = wanted.root.resolve()
    verdicts, moved = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as permuted_libraries, wanted.table.open("w") as table:
        os.chmod(permuted_libraries, 0o755)
        folders = [None]
        if wanted.libraries:
            for name in LIBRARIES:
                applied = permute(wanted, wanted.root / LIBRARY_FOLDER / name, pathlib.Path(permuted_libraries, name))
                if applied.returncode != 0:
                    sys.exit(f"emulated: {name}: {applied.stderr}")
            folders.append(permuted_libraries)
        print(line(COLUMNS), file=table)
        for program in sorted((wanted.root / "usr/bin").iterdir()):
            if program.is_symlink() or not program.is_file() or program.name in SKIPPED or wanted.only not in str(program):
                continue
            if not is_image(program, MACHINES["aarch64"]) or HAS_INTERPRETER not in program.read_bytes()[:4096]:
                continue
            fields = examine(wanted, program, folders)
            verdicts[fields[0]] += 1
            moved += fields[3] or 0
            print(line([program, *fields]), file=table, flush=True)
            if fields[0] in ("different", "failed"):
                print(f"{program}: {fields[-1]}")
    ran = verdicts["same"] + verdicts["varies"]
    print(f"{sum(verdicts.values())} programs: {dict(verdicts)}; {moved} functions moved or copied")
    return 1 if verdicts["different"] or verdicts["failed"] or ran < wanted.least else 0


if __name__ == "__main__":
    sys.exit(main())
