"""The tests of `check`: the same sample computed in several ways. Arguments: the command, and the number of traces."""

import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

SAMPLE = 40
TRACES_A_FILE = 200
PARTITIONS = (1, 5, 23)
HERE = pathlib.Path(__file__).resolve().parent
COMMANDS = (("app", "--first-screen"), ("app", "--open", "a document"), ("app", "--repair"))
# The last of them is rare: it must be in the sample all the same.
SHARES = (900, 99, 1)


def trace(draw):
    """One recorded run."""
    command = draw.choices(COMMANDS, SHARES)[0]
    lines = [
        "# reorder trace 1", f"# image: /opt/{command[0]}", f"# build-id: {draw.choice(['c0ffee', 'decade'])}",
        "# run: 1", f"# process: {draw.randrange(1 << 22)}", f"# weight: {draw.choice([1, 1, 1, 7])}", f"# program: {command[0]}",
        *(f"# argument: {word}" for word in command[1:]), "# columns: nanoseconds address size name",
    ]
    clock = 0
    for function in draw.sample(range(5000), 30):
        clock += draw.randrange(1, 5000)
        lines.append(f"{clock}\t{0x1000 + 64 * function:#x}\t64\tfunction_{function}")
    return "\n".join(lines) + "\n"


def written(folder, count):
    """Writes files with `count` traces in all; gives their list."""
    draw = random.Random(1)
    paths = []
    for start in range(0, count, TRACES_A_FILE):
        path = folder / f"device{start // TRACES_A_FILE}.trace"
        path.write_text("".join(trace(draw) for _ in range(min(TRACES_A_FILE, count - start))))
        paths.append(path)
    return paths


def executors():
    """The worker processes of Spark below this process."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split(None, 1)[0]) for line in listed.splitlines() if "CoarseGrainedExecutorBackend" in line and " --driver-url " in line]


class Killer(threading.Thread):
    """Kills one worker as soon as commands run."""

    def __init__(self, marks):
        super().__init__(daemon=True)
        self.marks, self.killed = marks, None

    def run(self):
        while not any(self.marks.iterdir()):
            time.sleep(0.02)
        self.killed = executors()[0]
        os.kill(self.killed, signal.SIGKILL)


def by_spark(work, paths, reorder, master, partitions):
    """The result of `spark.py`, which is a separate program."""
    listed, output = work / "list", work / "spark.trace"
    listed.write_text("".join(f"{path}\n" for path in paths))
    output.unlink(missing_ok=True)
    environment = {**os.environ, "MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    submitted = [
        sys.executable, HERE / "spark.py", listed, output, "--sample", str(SAMPLE), "--partitions", str(partitions),
        "--reorder", reorder,
    ]
    done = subprocess.run(submitted, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return output.read_bytes()
    if output.exists():
        sys.exit("check: a failed run left a result")
    raise RuntimeError(done.stderr[-2000:])


def main():
    reorder, count = sys.argv[1], int(sys.argv[2])
    digests = set()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "traces").mkdir()
        paths = written(work / "traces", count)

        def told(name, result):
            started = time.monotonic()
            lines = result()
            digest = hashlib.sha256(lines).hexdigest()[:16]
            digests.add(digest)
            print(f"{name:44} {digest} {lines.count(b'# reorder trace'):6} traces kept {time.monotonic() - started:7.1f} s", flush=True)

        def run(*command, **options):
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, **options)
            return (work / "result.trace").read_bytes()

        merge = [reorder, "traces", "merge", "--quiet", "--sample", SAMPLE, "--each", "command", "-o", work / "result.trace"]
        told("one process", lambda: run(*merge, work / "traces"))
        told("scripts/fleet/merge", lambda: run(
            HERE / "merge", work / "result.trace", SAMPLE, work / "traces", env={**os.environ, "REORDER": reorder}))
        for master in ("local[2]", "local-cluster[2,1,1024]"):
            for partitions in PARTITIONS:
                told(f"spark {master}, {partitions} partitions",
                     lambda master=master, partitions=partitions: by_spark(work, paths, reorder, master, partitions))

        marks = work / "marks"
        marks.mkdir()
        slow = work / "slow"
        # Long enough for the other tasks to be running when the worker dies.
        slow.write_text(f'#!/bin/sh\nmktemp "{marks}/XXXXXX" > /dev/null\nsleep 1\nexec "{reorder}" "$@"\n')
        slow.chmod(0o755)
        killer = Killer(marks)
        killer.start()
        told("spark local-cluster, a worker killed", lambda: by_spark(work, paths, str(slow), "local-cluster[2,1,1024]", PARTITIONS[-1]))
        if killer.killed is None:
            sys.exit("check: no worker was killed")

        try:
            by_spark(work, paths, "false", "local[2]", PARTITIONS[0])
        except RuntimeError:
            print("a command that fails fails the job")
        else:
            sys.exit("check: a command that failed gave a result")
    if len(digests) != 1:
        sys.exit("check: the results differ")


if __name__ == "__main__":
    main()
