"""AArch64 programs do real work under QEMU, as they are and with copies of a random half of their basic blocks.

Usage: emulated_works.py REORDER ROOT [--seeds N] [--only TEXT]

Each program of WORKS that is below ROOT/usr/bin runs its works in an empty directory with the same files, then again at the
same path with the copies of each seed: exit status, output and files must be equal. One line a program on standard output;
the status is 1 when one differs, is refused, or its original fails.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RUN_SECONDS, APPLY_SECONDS = 300, 900
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TERM": "dumb", "TZ": "UTC",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000", "GIT_CONFIG_NOSYSTEM": "1",
}
PERL = """
my %seen; open my $in, '<', 'words.txt' or die; while (<$in>) { $seen{lc $1}++ while /(\\w+)/g }
printf "%s %d\\n", $_, $seen{$_} for (sort { $seen{$b} <=> $seen{$a} or $a cmp $b } keys %seen)[0..20];
my @sorted = sort map { sprintf '%06d', ($_ * 7919) % 10007 } 1..2000; print join(',', @sorted[0..5]), "\\n";
eval { die { code => 7 } }; print "caught $@->{code}\\n"; print pack('w*', 1..300) =~ tr/\\x80-\\xff//, "\\n";
local $_ = 'x' x 300; s/(x{3})/length($1)/ge; print "$_\\n";
"""
BASH = """
declare -A seen; total=0; while read -r a b rest; do seen[$a]=$(( ${seen[$a]:-0} + ${#b} )); done < words.txt
for key in $(printf '%s\\n' "${!seen[@]}" | sort | head -20); do echo "$key ${seen[$key]}"; done
f() { local n=$1; (( n < 2 )) && { echo $n; return; }; echo $(( $(f $((n-1))) + $(f $((n-2))) )); }; f 9
trap 'echo caught' USR1; kill -USR1 $$; case abc in a*) echo ${PATH//:/+};; esac; printf '%q %5.2f\\n' 'a b' 3.14159
"""
LUA = """
local t = {} for i = 1, 3000 do t[i] = (i * 7919) % 10007 end table.sort(t) print(t[1], t[1500], #t)
print((pcall(error, {1}))) print(select('#', string.byte('hello', 1, -1))) for w in ('a b c'):gmatch('%a') do io.write(w, ';') end
local c = coroutine.wrap(function(...) for i = 1, 3 do coroutine.yield(i, ...) end end) print(c('x'), c(), c())
"""
PYTHON = """
import re, collections
words = re.findall(r'\\w+', open('words.txt').read()); print(collections.Counter(words).most_common(5))
print(f'{2.5:08.3f}', bytes(range(60, 90)), {'a': [1, None, 'x' * 3]}); print(sum(x * x for x in range(5000)), 3 ** 200 % 1000007)
try:
    {}['missing']
except KeyError as error:
    print(repr(error))
"""
SQL = """create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into t select i, 'row ' || (i * 7919 % 1009), i / 3.0 from n;
create index tb on t(b); select b, count(*), round(sum(c), 2) from t group by b order by 2 desc, 1 limit 7;
select avg(x.c) from t x join t y on x.b = y.b where y.a < 100; update t set b = upper(b) where a % 3 = 0; select * from t where b like 'ROW 5%' limit 4;
pragma integrity_check; explain query plan select * from t where b = 'x';
"""
# By program: the words of each run; `<` and a file come last where the program reads standard input.
WORKS = {
    "git": [["init", "-q", "."], ["add", "words.txt", "data.json"], ["commit", "-q", "-m", "one"], ["log", "--stat", "--oneline"],
            ["grep", "-c", "the"], ["diff", "--no-index", "words.txt", "data.json"], ["fsck", "--full"], ["gc", "-q"],
            ["archive", "--format=tar", "HEAD"], ["blame", "words.txt"], ["rev-parse", "nothing"]],
    "perl": [["-e", PERL], ["-ne", "print if /a.*e/", "words.txt"], ["-c", "words.txt"]],
    "bash": [["-c", BASH], ["-c", "for ((i = 0; i < 300; i++)); do x+=$i; done; echo ${#x} ${x:5:20}; set -o; shopt"], ["-c", "exit 3"]],
    "sqlite3": [["base.db", "<", "work.sql"], ["base.db", ".schema"], ["base.db", ".dump"], ["base.db", "select nothing"]],
    "gawk": [["{ n[$1] += length($2) } END { k = asorti(n, s); for (i = 1; i <= k && i < 20; i++) print s[i], n[s[i]] }", "words.txt"],
             ["BEGIN { for (i = 0; i < 200; i++) printf \"%x %s \", i * i, substr(\"abcdef\", i % 6, 2); print gensub(/a+/, \"<&>\", \"g\", \"baaac\") }"]],
    "xz": [["-k", "words.txt"], ["-t", "words.txt.xz"], ["-dc", "words.txt.xz"], ["-9e", "-c", "data.json"], ["-d", "words.txt"]],
    "zstd": [["-q", "words.txt"], ["-q", "-19", "-c", "data.json"], ["-dc", "words.txt.zst"], ["--list", "words.txt.zst"]],
    "cmake": [["-E", "sha256sum", "words.txt"], ["-P", "work.cmake"], ["-E", "compare_files", "words.txt", "data.json"], ["--help-command-list"]],
    "jq": [["-c", "[.[] | select(.n % 7 == 0) | {s: .s, m: (.n * 2)}] | sort_by(.s) | .[:9]", "data.json"], ["-r", "map(.s) | unique | length", "data.json"],
           [".[", "data.json"], ["-n", "[range(500)] | map(. * .) | add"]],
    "python3.11": [["-I", "-S", "-c", PYTHON], ["-I", "-S", "-c", "raise SystemExit(4)"]],
    "openssl": [["dgst", "-sha3-256", "words.txt"], ["enc", "-aes-256-cbc", "-pbkdf2", "-iter", "99", "-S", "0102030405060708", "-k", "x", "-in", "words.txt", "-out", "secret"],
                ["prime", "-hex", "7FFFFFFFFFFFFFFF"], ["base64", "-in", "data.json"], ["list", "-digest-commands"]],
    "lua5.4": [["-e", LUA], ["-e", "error('x')"]],
    "bc": [["-l", "<", "work.bc"]],
    "rg": [["--sort", "path", "-c", "[aeiou]{2}"], ["-n", "--no-heading", "t.e", "words.txt"], ["-o", "--column", "qu[a-z]+", "words.txt"], ["--type-list"], ["nothing-at-all"], ["("]],
    "sed": [["-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g; y/abc/xyz/", "words.txt"], ["-n", "$=", "words.txt"]],
}


def prepare(directory):
    """The files that works read."""
    directory.mkdir()
    words = "the quick brown fox jumps over lazy dogs while seven wizards boil queer ghosts from jade amphorae".split()
    lines = (" ".join(words[(i * 7 + j * (i % 5 + 1)) % len(words)] for j in range(8)) for i in range(900))
    (directory / "words.txt").write_text("\n".join(lines) + "\n")
    (directory / "data.json").write_text(json.dumps([{"n": i, "s": words[i % 16] * (i % 3 + 1)} for i in range(600)]))
    (directory / "work.sql").write_text(SQL)
    (directory / "work.bc").write_text("scale=40\n4*a(1)\ne(1.5)\ndefine f(n) { if (n < 2) return n; return f(n-1) + f(n-2) }\nf(15)\n2^200 % 97\n")
    (directory / "work.cmake").write_text(
        "set(s 0)\nforeach(i RANGE 200)\nmath(EXPR s \"${s} + ${i} * 3\")\nendforeach()\nmessage(STATUS ${s})\nfile(READ words.txt t)\n"
        "string(REGEX MATCHALL \"q[a-z]+\" m \"${t}\")\nlist(LENGTH m n)\nlist(REMOVE_DUPLICATES m)\nmessage(STATUS \"${n} ${m}\")\n"
        "string(SHA1 h \"${t}\")\nmessage(STATUS ${h})\nmessage(FATAL_ERROR stop)\n")


def work(root, image, directory, works):
    """How all works end, what they print, and the files that they leave."""
    prepare(directory)
    outcomes = []
    for words in works:
        source = subprocess.DEVNULL
        if "<" in words:
            source, words = (directory / words[-1]).open("rb"), words[: words.index("<")]
        command = ["qemu-aarch64-static", "-L", root, image, *words]
        try:
            done = subprocess.run(command, cwd=directory, env={**ENVIRONMENT, "HOME": str(directory)}, stdin=source, capture_output=True, timeout=RUN_SECONDS, check=False)
            outcomes.append((done.returncode, done.stdout, done.stderr))
        except subprocess.TimeoutExpired:
            outcomes.append("no end")
    # What git remembers of files' times and numbers is another one in each directory.
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name not in ("index", "base.db"))
    outcomes.append([(str(path.relative_to(directory)), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files])
    shutil.rmtree(directory)
    return outcomes


def examine(wanted, name, program):
    """The verdict on one program, and details."""
    with tempfile.TemporaryDirectory() as scratch:
        image, directory = pathlib.Path(scratch, name), pathlib.Path(scratch, "work")
        shutil.copyfile(program, image)
        image.chmod(0o755)
        before = work(wanted.root, image, directory, WORKS[name])
        if not any(outcome[0] == 0 for outcome in before[:-1]):
            return "fails", before[0]
        if work(wanted.root, image, directory, WORKS[name]) != before:
            return "varies", ""
        copies = []
        for seed in range(1, wanted.seeds + 1):
            command = [wanted.reorder, "apply", program, "--layout", "blocks", "--strategy", "random", "--seed", seed, "-o", image, "--format", "json"]
            image.unlink()
            applied = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=APPLY_SECONDS, check=False)
            if applied.returncode != 0:
                return "refused", " ".join(applied.stderr.split())[:400]
            copies.append(json.loads(applied.stdout)["clones"]["fragments"])
            after = work(wanted.root, image, directory, WORKS[name])
            wrong = [(words, old, new) for words, old, new in zip([*WORKS[name], "files"], before, after) if old != new]
            if wrong:
                return "different", f"seed {seed}: {str(wrong[0])[:600]}"
        return "same", f"{len(WORKS[name])} works, fragments {copies}"


def main():
    """Compares all programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reorder", type=pathlib.Path)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    wanted = parser.parse_args()
    wanted.root = wanted.root.resolve()
    verdicts = []
    for name in WORKS:
        program = wanted.root / "usr/bin" / name
        if wanted.only not in name or not program.exists():
            continue
        verdict, detail = examine(wanted, name, os.path.realpath(program))
        print(f"{name}: {verdict}: {detail}", flush=True)
        verdicts.append(verdict)
    return 0 if verdicts and all(verdict == "same" for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
