"""Writes files of many kinds, small and always the same, for programs to work on. Argument: the directory."""

import bz2
import gzip
import io
import json
import lzma
import math
import pathlib
import sqlite3
import struct
import subprocess
import sys
import tarfile
import wave
import zipfile
import zlib

SIDE = 24
TEXT = "".join(f"The {word} of line {number} is {number * 7919 % 613}, and its neighbour's {number ** 0.5:.4f}.\n"
               for number, word in enumerate("name value colour weight sum end start".split() * 9, 1)) + "\nÄrger über naïve Größen.\n"
C = """#include <stdio.h>
#define TWICE(x) ((x) * 2)
/* A comment. */
struct pair { int first; const char *second; };
static int sum(const int *values, int count) {
    int total = 0;
    for (int at = 0; at < count; at++) total += TWICE(values[at]); // twice
    return total;
}
int main(int argc, char **argv) {
    int values[] = {3, 1, 2};
    struct pair pair = {sum(values, 3), argc > 1 ? argv[1] : "none"};
    switch (pair.first) { case 12: printf("%d %s\\n", pair.first, pair.second); break; default: return 1; }
    return 0;
}
"""
TEXTS = {
    "text.txt": TEXT,
    "numbers.txt": "".join(f"{number} {number * 7919 % 613} {math.sin(number):.6f}\n" for number in range(1, 61)),
    "main.c": C,
    "table.csv": "id,name,value\n" + "".join(f"{number},name{number % 7},{number * 1.5}\n" for number in range(40)),
    "data.json": json.dumps({"list": list(range(20)), "nested": {"text": "a\tb", "null": None, "true": True, "number": 1.5e3}}, indent=1),
    "data.xml": '<?xml version="1.0" encoding="UTF-8"?>\n<a x="1"><b>text &amp; more</b><!-- c --><b n="2"/><c><![CDATA[<raw>]]></c></a>\n',
    "page.html": "<!DOCTYPE html><html><head><title>Page</title></head><body><h1>Head</h1><p>Some <b>bold</b> text<br>&copy; <a href='x.html'>link</a><ul><li>1<li>2</ul></body></html>\n",
    "drawing.svg": '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect x="2" y="3" width="20" height="10" fill="red"/><path d="M1 1 L20 20 Q 30 5 35 25 Z"/></svg>\n',
    "graph.dot": 'digraph g { a -> b [label="x"]; b -> c; c -> a; subgraph cluster_0 { d; e -> d } }\n',
    "page.ps": "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n/Times-Roman findfont 12 scalefont setfont 10 50 moveto (Hello) show newpath 10 10 moveto 90 90 lineto stroke showpage\n%%EOF\n",
    "paper.tex": "\\documentclass{article}\n\\begin{document}\n\\section{One} Text with $x^2 + \\alpha$ and \\emph{words}.\n\\end{document}\n",
    "manual.1": ".TH NAME 1\n.SH NAME\nname \\- does a thing\n.SH SYNOPSIS\n.B name\n[\\fIoption\\fR]\n.PP\nA paragraph.\n",
    "changes.diff": "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
    "sequences.fasta": ">one\nACGTACGTTAGCCTAGGATCCGATTACAGATTACA\n>two\nACGTACGATAGCCTAGCATCCGATTACAGTTTACA\n>three\nACGAACGTTAGCGTAGGATCCGAATACAGATTACA\n",
    "molecule.pdb": "".join(f"ATOM  {n:5}  CA  ALA A{n:4}    {n * 1.5:8.3f}{n * .7:8.3f}{n * .2:8.3f}  1.00  0.00           C\n" for n in range(1, 12)) + "END\n",
    "solid.stl": "solid s\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\nendsolid s\n",
    "grammar.y": "%token N\n%%\nsum: N | sum '+' N { $$ = $1 + $3; } ;\n%%\n",
    "listing.s": "\t.text\n\t.globl f\nf:\n\tmovl $1, %eax\n\tret\n\t.data\nx:\t.long 1, 2, 3\n",
    "commands.sh": "x=1\nfor i in 1 2 3; do x=$((x + i)); done\necho $x\n",
    "sums.scm": "(define (f n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2)))))\n(display (f 10))\n",
    "message.eml": "From: a@example.org\nTo: b@example.org\nSubject: =?UTF-8?Q?Gr=C3=BC=C3=9Fe?=\nDate: Mon, 01 Jan 2024 00:00:00 +0000\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n\nHello.\n",
    "settings.ini": "[section]\nkey = value\nnumber = 3 ; comment\n[other]\nlist = a, b\n",
    "triples.ttl": "@prefix e: <http://example.org/> .\ne:a e:b e:c ; e:d \"text\"@en , 5 .\n",
}


def png(rows):
    """A picture of eight-bit RGB rows."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b"")


def written(write):
    """What a function writes to a file."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def sound(file):
    """A tone."""
    with wave.open(file, "wb") as output:
        output.setparams((1, 2, 8000, 0, "NONE", ""))
        output.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(at / 5))) for at in range(4000)))


def archive(file):
    """Two files in a tape archive."""
    with tarfile.open(fileobj=file, mode="w") as output:
        for name in ("text.txt", "main.c"):
            member = tarfile.TarInfo(name)
            member.size = len(TEXTS[name].encode())
            output.addfile(member, io.BytesIO(TEXTS[name].encode()))


def packed(file):
    """The same, packed."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as output:
        for name in ("text.txt", "main.c"):
            output.writestr(zipfile.ZipInfo(name), TEXTS[name])


def main():
    """Writes all."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    rows = [bytes(value for x in range(SIDE) for value in (x * 10, y * 10, (x * y) % 256)) for y in range(SIDE)]
    pixels = b"".join(rows)
    files = {
        "picture.png": png(rows),
        "picture.ppm": b"P6\n%d %d\n255\n" % (SIDE, SIDE) + pixels,
        "picture.bmp": struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(pixels), 0, 0, 54, 40, SIDE, SIDE, 1, 24, 0, len(pixels), 2835, 2835, 0, 0) + pixels,
        "text.gz": gzip.compress(TEXT.encode(), mtime=0),
        "text.bz2": bz2.compress(TEXT.encode()),
        "text.xz": lzma.compress(TEXT.encode()),
        "sound.wav": written(sound),
        "files.tar": written(archive),
        "files.zip": written(packed),
        "bytes.bin": bytes(number * number % 251 for number in range(700)),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    database = folder / "data.sqlite"
    database.unlink(missing_ok=True)
    with sqlite3.connect(database) as connection:
        connection.execute("create table t(a integer primary key, b text)")
        connection.executemany("insert into t values(?, ?)", [(number, f"name{number}") for number in range(20)])
    subprocess.run(["gcc", "-O1", "-g", "-c", "main.c", "-o", "main.o"], cwd=folder, check=True)
    subprocess.run(["gcc", "main.o", "-o", "main"], cwd=folder, check=True)
    (folder / "main").chmod(0o644)


if __name__ == "__main__":
    main()
