"""What the startup of a program costs in the text of one of its libraries, by the kernel.

`reorder measure` counts touched pages of the program alone. Here the library is dropped from the page cache, then the program runs.
The pages that are in the cache afterwards are those that the run touched, provided that the disk does not read ahead. To switch
that off takes root, and concerns whatever else reads that disk meanwhile.
"""

import contextlib
import ctypes
import mmap
import os
import pathlib
import signal
import subprocess
import sys

PAGE = 4096
PTRACE_TRACEME, PTRACE_CONT, PTRACE_SETOPTIONS = 0, 7, 0x4200
PTRACE_O_TRACEEXIT, PTRACE_O_EXITKILL, PTRACE_EVENT_EXIT = 0x40, 0x100000, 6

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def read_ahead_setting(path):
    """Where the system says how far the disk of `path` is read ahead, in KiB."""
    device = os.stat(path).st_dev
    return pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")


@contextlib.contextmanager
def read_ahead(path, kib):
    """Inside of the `with`, the disk of `path` reads `kib` KiB ahead."""
    setting = read_ahead_setting(path)
    try:
        before = setting.read_text()
        setting.write_text(str(kib))
    except OSError as error:
        sys.exit(f"{path}: read-ahead of its disk cannot be switched off ({error}); this takes root, and TMPDIR on a disk of its own")
    try:
        yield
    finally:
        setting.write_text(before)


def cached(path):
    """For each page of the file, whether it is in the page cache."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        states = ctypes.create_string_buffer(-(-size // PAGE))
        failed = libc.mincore(start, size, states)
        libc.munmap(start, size)
    if failed:
        sys.exit(f"{path}: the system does not say which of its pages are in memory")
    return [bool(state & 1) for state in states.raw]


def evict(path):
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if any(cached(path)):
        sys.exit(f"{path}: its pages stay in memory, so those that a startup touches cannot be counted")


def text_pages(path):
    """Numbers of the file's pages that segments of code are on."""
    pages = set()
    for line in subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in "".join(words[6:-1]):
            offset, size = int(words[1], 16), int(words[4], 16)
            pages.update(range(offset // PAGE, -(-(offset + size) // PAGE)))
    return pages


def started(command, directory, environment):
    """The process of `command`, stopped before its first instruction."""

    def traced():
        libc.ptrace(PTRACE_TRACEME, 0, None, None)

    devices = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=directory, env=environment, preexec_fn=traced, **devices)
    os.waitpid(process.pid, 0)
    libc.ptrace(PTRACE_SETOPTIONS, process.pid, None, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)
    return process


def resident_text(process, path):
    """How many pages of the file's code are in the page table of the process."""
    resident, is_text = 0, False
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if "-" in words[0] and not words[0].endswith(":"):
            is_text = "x" in words[1] and words[-1] == str(path.resolve())
        elif is_text and words[0] == "Rss:":
            resident += int(words[1]) * 1024 // PAGE
    return resident


def run(command, directory, library):
    """Major faults of the run, and pages of the library's text in its page table at the end."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    process = started(command, directory, environment)
    mapped, passed = None, 0
    while True:
        libc.ptrace(PTRACE_CONT, process.pid, None, passed)
        _, status, usage = os.wait4(process.pid, 0)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        is_exit = status >> 8 == signal.SIGTRAP | PTRACE_EVENT_EXIT << 8
        if is_exit:
            mapped = resident_text(process.pid, library)
        passed = 0 if is_exit or os.WSTOPSIG(status) == signal.SIGTRAP else os.WSTOPSIG(status)
    if not mapped:
        sys.exit(f"{' '.join(map(str, command))}: it ended without having loaded {library}")
    return usage.ru_majflt, mapped


def measured(command, directory, library):
    """Pages of the library's text that the run touches, major faults of a run that begins with everything but the library in
    memory, and pages mapped.
    """
    run(command, directory, library)
    text = text_pages(library)
    with read_ahead(library, 0):
        evict(library)
        with library.open("rb") as file:
            file.read(1)
        if sum(cached(library)) != 1:
            sys.exit(f"{library}: its disk reads ahead although it was told not to; set TMPDIR to a folder on another disk")
        evict(library)
        run(command, directory, library)
        touched = sum(state for page, state in enumerate(cached(library)) if page in text)
    evict(library)
    faults, mapped = run(command, directory, library)
    return touched, faults, mapped
