"""Generated programs, built many ways, permuted many ways: each result must do what the original does.

Usage: campaign.py REORDER DIRECTORY [options]. Results are in DIRECTORY/results.jsonl, a line a program, and are not
repeated; findings are in DIRECTORY/findings, minimised. Exit status 1 when there is a finding.
"""

import argparse
import collections
import dataclasses
import json
import multiprocessing
import os
import pathlib
import tempfile
import time

import findings
import sources
from builds import draw, relink
from choices import Choices
from program import arguments, plan
from reduce import Case, check, reduce, smaller_parts, write
from trial import attempt, variants


def parse():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reorder", type=os.path.abspath)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--source", choices=["generated", "csmith", "torture"], default="generated")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first program")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--builds", type=int, default=4, help="builds of each program")
    parser.add_argument("--minutes", type=float, default=24 * 60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--machines", nargs="+", default=["x86_64", "x86_64", "x86_64", "aarch64"], help="a name given more often is drawn more often")
    parser.add_argument("--languages", nargs="+", default=["c", "c", "cpp"])
    parser.add_argument("--without", nargs="*", default=[], help="parts that are left out of generated programs")
    parser.add_argument("--no-reduce", action="store_true", help="keep findings as they are")
    return parser.parse_args()


def explore(task):
    """One program: its builds with all their outcomes, as a line of the results."""
    wanted, seed = task
    choices = Choices(f"builds {seed}")
    language = choices.choice(wanted.languages)
    if wanted.source == "torture":
        language = sources.torture(wanted.directory, seed).language
    elif wanted.source == "csmith":
        language = "c"
    plain = Case(seed, language, (), None, (), (), wanted.source, wanted.directory)
    if wanted.source == "generated":
        names = plan(seed, language)[0]
        plain = dataclasses.replace(plain, keep=tuple(number for number, name in enumerate(names) if name not in wanted.without), arguments=tuple(arguments(seed)))
    row = {"seed": seed, "language": language, "parts": plain.parts, "builds": []}
    with tempfile.TemporaryDirectory(prefix="redteam-") as folder:
        for number in range(wanted.builds):
            # Compiling takes longest: each set of objects is linked twice.
            build, ways = relink(choices, build) if number % 2 else draw(choices, wanted.machines, language), {}
            outcomes = attempt(wanted.reorder, build, write(plain, folder), folder, lambda image: ways.update(variants(choices, image, folder)) or ways)
            row["builds"].append({"build": dataclasses.asdict(build), "cell": build.cell, "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes]})
            wrong = [outcome for outcome in outcomes if outcome.is_finding]
            if wrong:
                case = dataclasses.replace(plain, build=build, words=tuple(ways[wrong[0].variant]))
                row["builds"][-1]["finding"] = record(wanted, case, wrong[0], folder)
    return row


def record(wanted, case, outcome, folder):
    """Minimises a finding and keeps it; gives its title."""
    directory = wanted.directory / "findings"
    if not wanted.no_reduce:
        again = check(wanted.reorder, case, folder)
        if again:
            case, outcome = smaller_parts(wanted.reorder, again[0], folder, again[1])
            if not findings.is_known(directory, case):
                case, outcome = reduce(wanted.reorder, case, folder, outcome)
    findings.keep(directory, wanted.reorder, case, outcome)
    return f"{outcome.result} {case.title}"


def summary(rows):
    """The table of all results; gives the number of findings."""
    results, cells, titles, moved, functions = collections.Counter(), collections.defaultdict(collections.Counter), collections.defaultdict(list), 0, 0
    first = {}
    for order, row in enumerate(sorted(rows, key=lambda row: row["seed"]), 1):
        for build in row["builds"]:
            for outcome in build["outcomes"]:
                results[outcome["result"]] += 1
                cells[build["cell"]][outcome["result"]] += 1
                moved += outcome["moved"]
                functions += outcome["functions"]
            if "finding" in build:
                titles[build["finding"]].append(row["seed"])
                first.setdefault(build["finding"], order)
    builds = sum(len(row["builds"]) for row in rows)
    print(f"{len(rows)} programs, {builds} builds, {sum(results.values())} outcomes; {moved} of {functions} functions moved")
    for result, count in results.most_common():
        print(f"  {count:8} {result}")
    print(f"\n{len(titles)} kinds of findings (how often, first after so many programs, a seed):")
    for title, seeds in sorted(titles.items(), key=lambda pair: -len(pair[1])):
        print(f"  {len(seeds):6} {first[title]:6} {seeds[0]:8} {title}")
    print("\nby build:")
    for cell, counts in sorted(cells.items()):
        print(f"  {cell:40} " + ", ".join(f"{count} {result}" for result, count in counts.most_common()))
    return len(titles)


def read(path):
    """The lines of the results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main():
    """Runs all seeds and prints the summary."""
    wanted = parse()
    wanted.directory.mkdir(parents=True, exist_ok=True)
    path = wanted.directory / "results.jsonl"
    done = {row["seed"] for row in read(path)}
    last = wanted.first + wanted.programs
    if wanted.source == "torture":
        last = min(last, len(sources.tests(wanted.directory)))
    until = time.monotonic() + wanted.minutes * 60
    seeds = (seed for seed in range(wanted.first, last) if seed not in done and time.monotonic() < until)
    with path.open("a") as table, multiprocessing.Pool(wanted.jobs) as pool:
        pending = collections.deque()
        for seed in seeds:
            pending.append(pool.apply_async(explore, ((wanted, seed),)))
            while len(pending) >= 2 * wanted.jobs:
                print(json.dumps(pending.popleft().get()), file=table, flush=True)
        while pending:
            print(json.dumps(pending.popleft().get()), file=table, flush=True)
    return 1 if summary(read(path)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
