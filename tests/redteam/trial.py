"""One trial: a program is built one way, permuted some ways, and each result must behave as the original does."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess

import oracle
from builds import Build

HOST = """#include <dlfcn.h>
#include <stdio.h>
/* Runs a program that was linked as a shared library. */
int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  int (*program)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "program") : 0;
  if (!program) { fprintf(stderr, "%s\\n", dlerror()); return 2; }
  int status = program(count - 1, words + 1);
  fflush(stdout);
  return status + dlclose(library);
}
"""
BUILD_SECONDS, APPLY_SECONDS, RUN_SECONDS = 120, 120, 10
EMULATOR = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
# The code by which the command reports that its relocator and its verifier disagree.
UNPROVEN = "R16"
# Outcomes that count as findings, the worst first.
FINDINGS = ["crash", "different", "hang", "stale", "rewritten", "unproven", "panic", "error"]


@dataclasses.dataclass
class Outcome:
    """The outcome of one variant."""

    variant: str
    result: str
    detail: str = ""
    moved: int = 0
    functions: int = 0

    @property
    def is_finding(self):
        """Whether it must be examined."""
        return self.result in FINDINGS


@dataclasses.dataclass
class Program:
    """Files to compile and arguments of the result."""

    files: list
    language: str
    arguments: list
    seconds: int = RUN_SECONDS
    extra: list = dataclasses.field(default_factory=list)
    # Output that the original must print for the run to count.
    sign: bytes = b"digest"


def limited():
    """Limits of every process that is started: a program out of control must not exhaust the system."""
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))


def call(command, seconds, folder=None):
    """Status (negative: signal; None: too long), standard output and errors of a command."""
    process = subprocess.Popen(list(map(str, command)), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True, preexec_fn=limited)
    try:
        output, errors = process.communicate(timeout=seconds)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        return None, b"", b""
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def libraries(program):
    """Libraries that programs are linked with; GCC's own tests need none."""
    return ["-lm"] if program.extra else ["-pthread", "-lm"]


def build_command(build: Build, program: Program, output):
    """The command that makes the image, for messages."""
    return [*build.compiling(program.language), *build.linking(), *program.files, *program.extra, "-o", output, *libraries(program)]


def compiled(build: Build, program: Program, labels, folder):
    """Objects of a program, reused from an earlier build with the same compilation, and a message if that fails."""
    command = [*build.compiling(program.language), "-c", *labels, *program.extra, *(os.path.join(folder, path) for path in program.files)]
    command = [word for word in command if not word.startswith("-Wl,")]
    key = hashlib.sha256("\0".join([*command, *(pathlib.Path(folder, path).read_text(errors="replace") for path in program.files)]).encode()).hexdigest()[:16]
    objects = pathlib.Path(folder, f"objects.{key}")
    if not objects.is_dir():
        objects.mkdir()
        status, _, errors = call(command, BUILD_SECONDS, objects)
        (objects / "message").write_text("" if status == 0 else f"{ending(status)}: {text(errors)}")
    return sorted(objects.glob("*.o")), (objects / "message").read_text() or None


def hosted(build, image, folder):
    """The words before the arguments that run an image."""
    words = EMULATOR if build.machine == "aarch64" else []
    image = f"./{pathlib.Path(image).name}"
    if build.kind != "shared":
        return [*words, image]
    host = pathlib.Path(folder, f"host.{build.machine}")
    if not host.exists():
        source = pathlib.Path(folder, "host.c")
        source.write_text(HOST)
        compiler = "aarch64-linux-gnu-gcc" if build.machine == "aarch64" else "gcc"
        subprocess.run([compiler, source, "-o", host, "-ldl"], check=True)
    return [*words, host, image]


def run(build, program, image, folder):
    """The behaviour of an image: status and output."""
    # The program's name in `argv[0]` is the same before and after.
    return call([*hosted(build, image, folder), *program.arguments], program.seconds, pathlib.Path(image).parent)


def text(errors):
    """The first words of a message."""
    return " ".join(errors.decode(errors="replace").split())[:300]


def order_of(image):
    """The functions of an image from the last to the first, by address, as an order file lists them."""
    status, output, _ = call(["nm", "--defined-only", image], 20)
    symbols = [line.split() for line in output.decode(errors="replace").splitlines()]
    addresses = sorted({int(words[0], 16) for words in symbols if len(words) == 3 and words[1] in "tTwWi"}, reverse=True)
    return "".join(f"{address:#x}\n" for address in addresses) if status == 0 else ""


def variants(choices, image, folder):
    """Arguments of `apply` by name: three random orders, one of the other ways to use it, and copies of random basic blocks."""
    seeds = choices.sample(range(1, 1000), 3)
    found = {f"seed {seed}": ["--strategy", "random", "--seed", str(seed)] for seed in seeds}
    other = choices.choice(["reverse", "clone", "clone all"])
    if other == "reverse":
        order = pathlib.Path(folder, "reverse.order")
        order.write_text(order_of(image))
        if order.stat().st_size:
            found["reverse"] = ["--order", str(order)]
    elif other == "clone":
        found[f"clone {seeds[0]}"] = ["--strategy", "random", "--seed", str(seeds[0]), "--clone"]
    else:
        found[f"clone all {seeds[0]}"] = ["--strategy", "random", "--seed", str(seeds[0]), "--clone=all"]
    layout = "both" if seeds[1] % 4 == 0 else "blocks"
    assumed = ["--assume-pointers"] if seeds[2] % 2 else []
    found[f"{layout} {seeds[1]}"] = ["--strategy", "random", "--seed", str(seeds[1]), "--layout", layout, *assumed]
    return found


def copies(words):
    """Whether code is copied: then the map of the functions does not say where a word of data may lead."""
    return "--layout" in words or any(word.startswith("--clone") for word in words)


def apply(reorder, image, output, words):
    """An outcome without a result when an output was written, otherwise the reason. The address map is next to it."""
    pathlib.Path(output).unlink(missing_ok=True)
    address_map = [] if copies(words) else ["--map", f"{output}.map"]
    status, report, errors = call([reorder, "apply", image, *words, "-o", output, "--format", "json", *address_map], APPLY_SECONDS)
    name = " ".join(words)
    message = text(errors)
    if b"panicked" in errors:
        return Outcome(name, "panic", message)
    if status == 0:
        facts = json.loads(report)
        return Outcome(name, "", "", facts["functions_moved"], facts["functions"])
    code = re.search(r"refused \((\w+)\)", message)
    if status in (1, 2) and code:
        return Outcome(name, "unproven" if code[1] == UNPROVEN else f"refused {code[1]}", message)
    return Outcome(name, "error", f"status {status}: {message}")


def ending(status):
    """How a process ended, in words."""
    if status is None:
        return "does not end"
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def judge(build, program, expected, image, output, folder):
    """The behaviour of a permuted image, compared with the original: result and detail."""
    status, printed, errors = run(build, program, output, folder)
    if (status, printed, errors) == expected:
        return "equal", ""
    # Only behaviour that the original repeats is required of the result, and only failures that the result repeats count.
    if run(build, program, image, folder) != expected or run(build, program, output, folder) == expected:
        return "unsteady", ""
    lines, wanted = printed.splitlines(), expected[1].splitlines()
    first = next((f"{old!r} became {new!r}" for old, new in zip(wanted, lines, strict=False) if old != new), f"{len(lines)} of {len(wanted)} lines")
    detail = f"{ending(expected[0])} became {ending(status)}; {first}; {text(errors)}"
    if status is None:
        return "hang", detail
    return "crash" if status < 0 else "different", detail


def make(build, program, image, folder):
    """Makes the image; gives the words that its relocations name, or None without relocations, and a message if it fails."""
    image.unlink(missing_ok=True)
    if any("ifunc(" in pathlib.Path(folder, name).read_text() for name in program.files):
        if (build.machine, build.linker) == ("aarch64", "gold"):
            return [], "gold stores the address of the resolver where that of the function belongs"
        if build.compiler == "musl":
            return [], "musl calls no resolvers"
    # Tables of other processors need no change when they move with their function, and code made at link time has no labels.
    known = build.machine == "x86_64" and "-flto" not in build.flags
    objects, failure = compiled(build, program, oracle.COMPILE_FLAGS if known else [], folder)
    if failure:
        return [], failure
    full = pathlib.Path(folder, "full") if known else image
    command = [*build.compiling(program.language), *build.linking(), *objects, "-o", full, *libraries(program)]
    if known:
        command = [word for word in command if word != "-s"] + oracle.LINK_FLAGS
    status, _, errors = call(command, BUILD_SECONDS, folder)
    if status == 0 and known:
        status, _, errors = call(oracle.strip_command(full, image, build), BUILD_SECONDS, folder)
    return (list(oracle.words(full)) if known else [], None) if status == 0 else ([], text(errors))


def attempt(reorder, build, program, folder, ways):
    """All outcomes of one build. `ways` gives arguments of `apply` by name for an image."""
    image, output = pathlib.Path(folder, "before", "image"), pathlib.Path(folder, "after", "image")
    for path in (image, output):
        path.parent.mkdir(exist_ok=True)
    known, failure = make(build, program, image, folder)
    if failure is not None:
        return [Outcome("build", "unbuildable", failure)]
    expected = run(build, program, image, folder)
    if expected[0] is None or expected[0] < 0 or program.sign not in expected[1]:
        return [Outcome("run", "broken before", f"{ending(expected[0])}: {text(expected[2])}")]
    outcomes, is_refused = [], False
    for name, words in ways(image).items():
        # What refuses one order refuses all; what cannot be moved may still have copies.
        if is_refused and "--layout" not in words:
            continue
        outcome = apply(reorder, image, output, words)
        outcome.variant = name
        if not outcome.result:
            outcome.result, outcome.detail = judge(build, program, expected, image, output, folder)
            if known and not copies(words):
                accuse(outcome, "stale", list(oracle.stale(known, output, oracle.Moves(f"{output}.map"))))
            if known and (not copies(words) or "blocks" in words):
                accuse(outcome, "rewritten", list(oracle.rewritten(pathlib.Path(folder, "full"), image, output)))
        outcomes.append(outcome)
        is_refused |= outcome.result.startswith("refused")
    return outcomes


def accuse(outcome, result, wrong):
    """Adds the differences of the oracle to an outcome; it is a finding also where no run shows it."""
    if wrong:
        outcome.result = result if outcome.result in ("equal", "unsteady") else outcome.result
        outcome.detail += f"; {len(wrong)} words {result}, such as: {wrong[0]}"


def lines(reorder, build, program, words):
    """The commands that reproduce an outcome, for messages."""
    name = os.path.basename(reorder)
    runs = "./host ./" if build.kind == "shared" else "./"
    prefix = "qemu-aarch64-static -L /usr/aarch64-linux-gnu " if build.machine == "aarch64" else ""
    return [shlex.join(map(str, build_command(build, program, "image"))), shlex.join([name, "apply", "image", *words, "-o", "moved"]),
            *(f"{prefix}{runs}{which} {shlex.join(program.arguments)}" for which in ("image", "moved"))]
