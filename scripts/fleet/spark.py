"""A fair sample of a fleet's traces on Apache Spark.

Usage: spark.py LIST OUTPUT --sample N [--seed S] [--each image|command] [--partitions P] [--reorder COMMAND]

LIST is a file with one path a line: trace or profile files that every worker can read under that path, as on shared
storage. Each partition of the paths goes through `reorder traces merge`, then the parts do, a few at a time, until there is
one. Merging is associative, commutative and idempotent, so neither the number of partitions nor tasks that ran twice or
died show in the result.

Run it with `spark-submit --master … spark.py …`, or with `MASTER` in the environment as a plain Python program. The command
must be on every worker; the static build needs nothing else.
"""

import argparse
import contextlib
import os
import pathlib
import shlex

from pyspark import SparkConf, SparkContext

# Parts that one task merges: a sample is small, so a task is worth more than one of them.
FAN_IN = 8


def merging(options, source):
    """The command line of one step; no process is started for an empty partition."""
    words = [
        *shlex.split(options.reorder), "traces", "merge", "--quiet", "--threads", "1", "--sample", str(options.sample),
        "--each", options.each, "--seed", str(options.seed), source,
    ]
    script = 'IFS= read -r first || exit 0; { printf "%s\\n" "$first"; cat; } | ' + shlex.join(words)
    return shlex.join(["sh", "-c", script])


def sampled(context, paths, options):
    """The lines of the merged sample."""
    # Without `checkCode` a command that fails gives no lines and no error.
    parts = context.parallelize(paths, options.partitions).pipe(merging(options, "@/dev/stdin"), checkCode=True)
    while parts.getNumPartitions() > 1:
        fewer = -(-parts.getNumPartitions() // FAN_IN)
        # A shuffle, so that the parts before it are not computed again for every task after it.
        parts = parts.mapPartitions(lambda lines: ["\n".join(lines)]).repartition(fewer)
        parts = parts.flatMap(lambda part: part.split("\n") if part else []).pipe(merging(options, "-"), checkCode=True)
    return parts.collect()


def write_whole(path, lines):
    """The file appears when it is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.ExitStack() as undo:
        undo.callback(beside.unlink, missing_ok=True)
        with beside.open("w", encoding="utf-8", newline="") as file:
            file.writelines(f"{line}\n" for line in lines)
        beside.replace(path)


def parsed(words=None):
    """The options."""
    parser = argparse.ArgumentParser(description="A fair sample of a fleet's traces")
    parser.add_argument("list", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--sample", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", choices=("image", "command"), default="command")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--reorder", default="reorder")
    return parser.parse_args(words)


def main():
    options = parsed()
    paths = [line for line in options.list.read_text(encoding="utf-8").split("\n") if line]
    configuration = SparkConf().setAppName("reorder traces merge")
    if "MASTER" in os.environ:
        configuration.setMaster(os.environ["MASTER"])
    with SparkContext(conf=configuration) as context:
        write_whole(options.output, sampled(context, paths, options))


if __name__ == "__main__":
    main()
