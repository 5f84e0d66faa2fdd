"""Builds: a processor, a compiler, a linker, a kind of image and flags, a random combination that works."""

import dataclasses
import os
import pathlib
import shutil
import tempfile

from tool_versions import LLVM, VERSIONS

# LLVM's tools under their names without a version.
LLVM_FOLDER = pathlib.Path(f"/usr/lib/llvm{LLVM}/bin")
# How code is compiled for each kind of image, and how that is linked.
KINDS = {
    "pie": ("-fPIE", ["-pie"]),
    "pie-relocs": ("-fPIE", ["-pie", "-Wl,--emit-relocs"]),
    "fixed": ("-fno-pie", ["-no-pie"]),
    "fixed-relocs": ("-fno-pie", ["-no-pie", "-Wl,--emit-relocs"]),
    "static": ("-fno-pie", ["-no-pie", "-static"]),
    "static-relocs": ("-fno-pie", ["-no-pie", "-static", "-Wl,--emit-relocs"]),
    "static-pie": ("-fPIE", ["-static-pie"]),
    "shared": ("-fPIC", ["-shared"]),
}
# Other kinds of images that the same objects can be linked into.
KINDS_OF_MODEL = {"-fPIE": ["pie", "pie-relocs", "fixed", "fixed-relocs", "static-pie", "static"], "-fno-pie": ["fixed", "fixed-relocs", "static"], "-fPIC": ["shared"]}
LEVELS = ["-O0", "-O1", "-O2", "-O2", "-O2", "-O3", "-Os"]
COMMON_FLAGS = ["-ffunction-sections", "-fno-plt", "-fno-asynchronous-unwind-tables", "-flto", "-fno-jump-tables", "-fno-inline",
                "-fdata-sections -ffunction-sections -Wl,--gc-sections", "-falign-functions=64", "-falign-functions=1", "-g",
                "-fomit-frame-pointer", "-fno-omit-frame-pointer", "-fstack-protector-all", "-Wl,-z,now", "-Wl,-z,pack-relative-relocs",
                "-funroll-loops", "-fvisibility=hidden", "-Wl,--hash-style=sysv", "-Wl,-z,separate-code", "-Wl,-z,noseparate-code"]
X86_FLAGS = ["-fcf-protection=none", "-fcf-protection=full", "-fcf-protection=branch"]
GCC_FLAGS = ["-freorder-blocks-and-partition", "-fno-reorder-functions", "-fno-toplevel-reorder", "-fno-reorder-blocks", "-fno-section-anchors",
             "-fno-ipa-cp", "-fwhole-program", "-fprofile-generate", "-fharden-conditional-branches", "-fno-ipa-ra", "-fno-ipa-icf",
             "-fno-tree-switch-conversion", "-fpatchable-function-entry=4,2", "-fno-common", "-fno-merge-constants", "-fgcse-las", "-fno-gcse",
             "-fpeel-loops -ftracer", "-fno-partial-inlining", "-fsplit-loops -fipa-pta"]
GCC_X86_FLAGS = ["-mindirect-branch=thunk -fjump-tables -fcf-protection=none", "-mindirect-branch=thunk-inline -fjump-tables -fcf-protection=none",
                 "-mfunction-return=thunk -fcf-protection=none", "-mcmodel=large -fcf-protection=none", "-mcmodel=medium", "-fsplit-stack", "-mno-red-zone", "-pg",
                 "-mspeculative-load-hardening", "-mindirect-branch-register -mindirect-branch=thunk -fcf-protection=none", "-march=x86-64-v3",
                 "-mforce-indirect-call", "-mlarge-data-threshold=16 -mcmodel=medium"]
GCC_ARM_FLAGS = ["-mbranch-protection=standard", "-mcmodel=tiny", "-mcmodel=large", "-mfix-cortex-a53-843419", "-mno-outline-atomics", "-mtrack-speculation"]
CLANG_FLAGS = ["-fsanitize=kcfi", "-fsanitize=function -fno-sanitize-recover=all", "-fbasic-block-sections=all", "-fsplit-machine-functions", "-moutline", "-fpatchable-function-entry=2",
               "-mllvm -enable-matrix", "-fexperimental-relative-c++-abi-vtables", "-fno-addrsig", "-fstack-clash-protection", "-fno-unwind-tables", "-mllvm -hot-cold-split=true",
               "-funique-internal-linkage-names", "-mllvm -max-jump-table-size=6", "-mllvm -min-jump-table-entries=2", "-ffast-math"]
CLANG_X86_FLAGS = ["-mretpoline -fcf-protection=none", "-mcmodel=large", "-mcmodel=medium", "-mspeculative-load-hardening",
                   "-fcf-protection=full -mno-tls-direct-seg-refs", "-march=x86-64-v3", "-mlvi-hardening"]
CLANG_ARM_FLAGS = ["-mbranch-protection=standard", "-mcmodel=tiny", "-mcmodel=large", "-Wl,--fix-cortex-a53-843419", "-mllvm -aarch64-enable-compress-jump-tables=false",
                   "-mllvm -enable-machine-outliner=always", "-mharden-sls=all"]
LINK_FLAGS = {"lld": ["-Wl,--icf=all", "-Wl,--icf=safe", "-Wl,--no-rosegment", "-Wl,-z,rel", "-Wl,--pack-dyn-relocs=android+relr", "-Wl,-O2"],
              "gold": ["-Wl,--icf=all", "-Wl,--icf=safe"], "mold": ["-Wl,--icf=all", "-Wl,--icf=safe"], "bfd": ["-Wl,--relax", "-Wl,-z,relro"]}


@dataclasses.dataclass(frozen=True)
class Build:
    """How a program is made. `flags` are words or groups of words that belong together."""

    machine: str
    compiler: str
    linker: str
    kind: str
    level: str
    flags: tuple = ()
    stripped: bool = False
    # How it is compiled, if not in the default way of its kind.
    model: str = ""

    @property
    def cell(self):
        """The key by which kinds of builds are counted."""
        return f"{self.machine} {self.compiler} {self.linker} {self.kind}"

    def compiling(self, language):
        """The command that compiles, without files."""
        plus = language == "cpp"
        if self.compiler.startswith("clang"):
            command = [("clang++" if plus else "clang") + LLVM]
            if self.machine == "aarch64":
                command.append("--target=aarch64-linux-gnu")
        elif self.compiler == "musl":
            command = ["musl-gcc"]
        else:
            version = self.compiler.partition("-")[2] if not plus else ""
            command = [("aarch64-linux-gnu-" if self.machine == "aarch64" else "") + ("g++" if plus else "gcc") + (f"-{version}" if version else "")]
        command += ["-std=gnu++20" if plus else "-std=gnu17", "-w", self.level, self.model or KINDS[self.kind][0]]
        command += ["-Dmain=program"] if self.kind == "shared" else []
        return command + [word for flag in self.flags for word in flag.split()]

    def linking(self):
        """Further words of the command for linking."""
        return [*KINDS[self.kind][1], *linker_words(self.linker)] + (["-s"] if self.stripped else [])

    def describe(self):
        """Text for messages."""
        return " ".join([self.cell, self.level, self.model, *self.flags] + (["-s"] if self.stripped else []))


def linker_words(linker):
    """The option that selects the linker."""
    if linker == "lld":
        # Only LLVM's own folder has the name that drivers look for.
        return [f"-B{LLVM_FOLDER}", "-fuse-ld=lld"]
    if linker == "mold":
        return [f"-B{mold_folder()}", "-fuse-ld=mold"]
    return [f"-fuse-ld={linker}"]


def mold_folder():
    """A folder with mold under the name that drivers for another processor look for."""
    folder = pathlib.Path(tempfile.gettempdir(), f"redteam-mold-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    link = folder / "ld.mold"
    if not link.is_symlink():
        link.symlink_to(shutil.which("mold"))
    return folder


def relink(choices, build):
    """Another image of the same objects."""
    model = build.model or KINDS[build.kind][0]
    linker = choices.choice(["bfd", "gold", "lld", "mold"])
    kind = choices.choice(KINDS_OF_MODEL[model])
    if "-flto" in build.flags or (linker, kind) == ("gold", "static-pie") or build.compiler == "musl":
        linker, kind = build.linker, build.kind
    if (build.machine, build.compiler, linker) == ("aarch64", "gcc", "mold"):
        linker = "bfd"
    flags = build.flags if linker == build.linker else tuple(flag for flag in build.flags if not flag.startswith("-Wl,"))
    stripped = choices.chance(30) and not kind.endswith("relocs")
    return dataclasses.replace(build, linker=linker, kind=kind, flags=flags, stripped=stripped, model=model if model != KINDS[kind][0] else "")


def draw(choices, machines, language):
    """A build at random."""
    machine = choices.choice(machines)
    compiler = choices.choice(["gcc", "gcc", "gcc", VERSIONS["OLDER_GCC"], "clang", "clang", "clang"] * 3 + ["musl"])
    if machine == "aarch64" or language == "cpp":
        compiler = compiler.partition("-")[0].replace("musl", "gcc")
    linker = choices.choice(["bfd", "bfd", "bfd", "gold", "lld", "lld", "mold"])
    if machine == "aarch64" and compiler == "gcc" and linker == "mold":
        linker = "bfd"
    kind = choices.choice(["pie"] * 8 + ["pie-relocs"] * 2 + ["fixed"] * 3 + ["fixed-relocs"] * 3 + ["static"] + ["static-relocs"] + ["static-pie"] + ["shared"] * 3)
    if linker == "gold" and kind == "static-pie":
        kind = "pie"
    if compiler == "musl" and not kind.startswith("static"):
        # Few systems have its loader; it is used for static programs.
        kind = choices.choice(["static", "static", "static-relocs"])
    level = choices.choice(LEVELS + (["-Oz"] if compiler == "clang" else []))
    pool = COMMON_FLAGS + LINK_FLAGS[linker] + LINK_FLAGS[linker]
    own = {("gcc", "x86_64"): GCC_FLAGS + GCC_X86_FLAGS, ("gcc", "aarch64"): GCC_FLAGS + GCC_ARM_FLAGS,
           ("musl", "x86_64"): GCC_FLAGS, ("clang", "x86_64"): CLANG_FLAGS + CLANG_X86_FLAGS, ("clang", "aarch64"): CLANG_FLAGS + CLANG_ARM_FLAGS}
    pool = pool + own[compiler.partition("-")[0], machine] * 2 + (X86_FLAGS * 2 if machine == "x86_64" else [])
    flags = tuple(dict.fromkeys(choices.choices(pool, k=choices.choice([0, 0, 1, 1, 1, 2, 3]))))
    if "-flto" in flags and not (compiler.startswith("gcc") and linker == "bfd" or compiler == "clang" and linker == "lld"):
        flags = tuple(flag for flag in flags if flag != "-flto")
    # Linkers keep no relocations in stripped images.
    return Build(machine, compiler, linker, kind, level, flags, choices.chance(25) and not kind.endswith("relocs"))
