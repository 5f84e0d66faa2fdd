#!/usr/bin/env python3
"""Whole startups before and after `reorder optimize --libraries`: faults by kind, bytes read, time on a slow device.

The disk of TMPDIR decides the major faults: set its read-ahead to 128 KiB. With --iops, a control group limits how many reads a
second that disk serves, and the last columns show how long a cold startup takes then (root and cgroup v1 only).
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

GROUP = pathlib.Path("/sys/fs/cgroup/blkio/reorder-startups")
KINDS = ("text", "names", "relocations", "read_only_data", "written_data")


def run(command, directory):
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    result = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=environment
    )
    if result.returncode not in (0, 1):
        raise RuntimeError(f"{shlex.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def sides(measurement, kind):
    """The medians of a figure, before and after; None where it is unknown."""
    figures = {figure["kind"]: figure for figure in measurement["figures"]}
    figure = figures.get(kind)
    return [figure[side]["median"] if figure else None for side in ("old", "new")]


def throttled(directory, iops, command):
    """The output of a command while the disk serves `iops` reads a second."""
    device = os.stat(directory).st_dev
    GROUP.mkdir(exist_ok=True)
    try:
        rule = f"{os.major(device)}:{os.minor(device)} {iops}"
        (GROUP / "blkio.throttle.read_iops_device").write_text(rule)
        inside = ["sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh", *command]
        return run(inside, directory)
    finally:
        (GROUP / "blkio.throttle.read_iops_device").write_text(f"{os.major(device)}:{os.minor(device)} 0")
        GROUP.rmdir()


def measured(reorder, program, arguments, work, iops):
    words = ["--run", arguments, "--measure-runs", "3", "--time-limit", "300"]
    output = work / "set"
    made = json.loads(
        run([reorder, "--format", "json", "optimize", program, "--libraries", "-o", output, *words], work)
    )
    cold = made["runs"][0]["measured"]
    pair = ["--whole-process", "--new-libraries", output, program, output / pathlib.Path(program).name]
    common = [reorder, "--format", "json", "measure", "--runs", "3", "--time-limit", "300"]
    warm = json.loads(run([*common, "--warm", *pair, "--", *shlex.split(arguments)], work))["measurements"][0]
    slow = None
    if iops:
        text = throttled(work, iops, [*map(str, common), *map(str, pair), "--", *shlex.split(arguments)])
        slow = sides(json.loads(text)["measurements"][0], "wall_milliseconds")
    process = cold.get("process") or {"kinds": []}
    kinds = {row["place"]: [row[side].get("major") for side in ("old", "new")] for row in process["kinds"]}
    return {
        "images": (len(made["images"]), made["only_names_placed"], len(made["left"])),
        "major": sides(cold, "major_faults"),
        "kinds": kinds,
        "read": sides(cold, "kibibytes_read"),
        "wall": sides(cold, "wall_milliseconds"),
        "warm": sides(warm, "minor_faults"),
        "slow": slow,
    }


def shown(pair):
    if not pair or None in pair:
        return "-"
    return f"{pair[0]:.0f}→{pair[1]:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reorder", required=True)
    parser.add_argument("--iops", type=int)
    parser.add_argument("--llvm", default="")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    titles = ["startup", "all", "change", *(kind.replace("_", " ") for kind in KINDS), "KiB read", "cold ms", "faults warm", "slow ms"]
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    for line in (pathlib.Path(__file__).parent / "list").read_text().replace("$LLVM", arguments.llvm).splitlines():
        if line.startswith("#"):
            continue
        name, _, program, words = line.split("\t")
        if arguments.names and name.split()[0] not in arguments.names:
            continue
        with tempfile.TemporaryDirectory() as directory:
            work = pathlib.Path(directory)
            (work / "empty.c").write_text("int main(void) { return 0; }\n")
            try:
                result = measured(shutil.which(arguments.reorder), program, words, work, arguments.iops)
            except (RuntimeError, json.JSONDecodeError, KeyError) as error:
                print(f"| {name} | not measured: {str(error)[:300]} |", flush=True)
                continue
        old, new = result["major"]
        cells = [f"{name} {words}", shown(result["major"]), f"{100 * (new / old - 1):+.0f} %" if old else "-"]
        cells += [shown(result["kinds"].get(kind)) for kind in KINDS]
        cells += [shown(result[figure]) for figure in ("read", "wall", "warm", "slow")]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
