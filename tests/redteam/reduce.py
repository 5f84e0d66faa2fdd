"""Minimises a finding: drops parts, flags and arguments as long as the result is still wrong."""

import dataclasses
import pathlib

import sources
from program import generate, plan
from trial import Program, attempt, order_of

# Number of orders tried before a smaller program counts as correct: what moves differs with every change.
SEEDS = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """A finding: which parts of which program, how it is built and run, how it is permuted."""

    seed: int
    language: str
    keep: tuple
    build: object
    arguments: tuple
    words: tuple
    source: str = "generated"
    # Folder for files that the sources need.
    directory: str = ""

    @property
    def parts(self):
        """Names of the remaining parts."""
        if self.source == "torture":
            return [sources.torture(self.directory, self.seed).files[0].stem]
        if self.source != "generated":
            return [self.source]
        names, _ = plan(self.seed, self.language)
        return [names[number] for number in self.keep]

    @property
    def title(self):
        """The common properties of findings of one kind; fit for a file name."""
        flags = [flag.replace(" ", "") for flag in self.build.flags]
        words = [self.build.machine] * (self.build.machine != "x86_64") + [self.build.compiler.partition("-")[0]]
        words += [self.build.kind] * (self.build.kind != "pie") + [self.build.linker] * (self.build.linker != "bfd")
        words += [word for word in self.words if word.startswith("--clone") or word in ("blocks", "both")]
        return "_".join(["+".join(sorted(set(self.parts))), *words, *flags]).replace("/", "")


def write(case, folder):
    """The program of a case, with its files in the folder."""
    if case.source != "generated":
        return getattr(sources, case.source)(case.directory, case.seed, folder)
    files = []
    for path in pathlib.Path(folder).glob("unit*"):
        path.unlink()
    for name, text in generate(case.seed, case.language, set(case.keep)).items():
        pathlib.Path(folder, name).write_text(text)
        files.append(name)
    return Program(files, case.language, list(case.arguments))


def ways_of(words, tries=SEEDS):
    """The order of a finding, and others of its kind."""
    ways = {"same": list(words)}
    if "--seed" in words:
        place = words.index("--seed") + 1
        for seed in range(1, tries):
            ways[f"seed {seed}"] = [*words[:place], str(seed), *words[place + 1:]]
    return ways


def check(reorder, case, folder):
    """The case with an order that fails, and the failure, or None."""
    program = write(case, folder)
    ways = ways_of(case.words)

    def adapted(image):
        # An order lists the functions of the image that it is for.
        for word in case.words:
            if word.endswith(".order"):
                pathlib.Path(word).write_text(order_of(image))
        return ways

    for outcome in attempt(reorder, case.build, program, folder, adapted):
        if outcome.is_finding:
            return dataclasses.replace(case, words=tuple(ways[outcome.variant])), outcome
    return None


def smaller_parts(reorder, case, folder, outcome):
    """One part alone if possible, otherwise as few as possible."""
    if len(case.keep) == 1:
        return case, outcome
    for number in case.keep:
        found = check(reorder, dataclasses.replace(case, keep=(number,)), folder)
        if found:
            return found
    for number in case.keep:
        rest = tuple(other for other in case.keep if other != number)
        found = rest and check(reorder, dataclasses.replace(case, keep=rest), folder)
        if found:
            case, outcome = found
    return case, outcome


def simpler_builds(build):
    """Builds with one thing less, the simplest first."""
    yield dataclasses.replace(build, flags=())
    for flag in build.flags:
        yield dataclasses.replace(build, flags=tuple(other for other in build.flags if other != flag))
    for change in ({"stripped": False}, {"kind": "pie", "model": ""}, {"model": ""}, {"linker": "bfd"}, {"compiler": "gcc"}, {"machine": "x86_64"}, {"level": "-O2"}, {"level": "-O1"}):
        yield dataclasses.replace(build, **change)


def reduce(reorder, case, folder, outcome):
    """The smallest case that still fails, and its failure."""
    case, outcome = smaller_parts(reorder, case, folder, outcome)
    changed = True
    while changed:
        changed = False
        for build in simpler_builds(case.build):
            if build == case.build or (build.level, case.build.level) == ("-O2", "-O1"):
                continue
            found = check(reorder, dataclasses.replace(case, build=build), folder)
            if found:
                (case, outcome), changed = found, True
                break
    for word in case.arguments:
        rest = tuple(other for other in case.arguments if other != word)
        found = rest and check(reorder, dataclasses.replace(case, arguments=rest), folder)
        if found:
            case, outcome = found
    if any(word.startswith("--clone") for word in case.words):
        plain = tuple(word for word in case.words if not word.startswith("--clone"))
        found = check(reorder, dataclasses.replace(case, words=plain), folder)
        if found:
            case, outcome = found
    return case, outcome
