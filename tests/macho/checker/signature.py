"""Computes the ad hoc signature of images independently: signature.py IMAGE [ARCHITECTURE]

Every page hash, the hashes of the special slots, and what the directory says about the file must be what this computes, by the
structures of Apple's cs_blobs.h. Also asks LIEF to parse the image, and compares the entry, the exports and the function
starts that it finds with those of this package's own reader.
"""

import hashlib
import pathlib
import struct
import sys

import tables  # noqa: F401  # finds the reader
import lief
from image import Image

CODE_SIGNATURE = 0x1D
EMBEDDED, DIRECTORY = 0xFADE0CC0, 0xFADE0C02
ADHOC = 0x2
SHA_256 = 2
PROGRAM = 2


def signature_faults(image):
    """The errors of the signature, a sentence each."""
    at = image.command(CODE_SIGNATURE)
    if at is None:
        yield "no signature"
        return
    offset, size = struct.unpack_from("<2I", image.data, at + 8)
    blob = bytes(image.data[offset : offset + size])
    if offset % 16 or offset + size != len(image.data):
        yield f"a signature at {offset:#x} of {size} bytes in a file of {len(image.data)} bytes"
    magic, length, count = struct.unpack_from(">3I", blob)
    if magic != EMBEDDED or length > size:
        yield f"a blob {magic:#x} of {length} bytes"
        return
    slots = dict(struct.unpack_from(">2I", blob, 12 + 8 * index) for index in range(count))
    directory = slots.pop(0)
    fields = struct.unpack_from(">9I4BI", blob, directory)
    magic, length, version, flags, hashes, _identifier, special, pages, limit = fields[:9]
    hash_size, hash_type, _, page_shift = fields[9:13]
    if magic != DIRECTORY or hash_type != SHA_256 or hash_size != 32 or not flags & ADHOC:
        yield f"a directory {magic:#x} with flags {flags:#x} and hashes of type {hash_type}"
    if limit != offset or pages != (limit + (1 << page_shift) - 1) >> page_shift:
        yield f"{pages} pages up to {limit:#x}"
    for page in range(pages):
        start = page << page_shift
        wanted = hashlib.sha256(image.data[start : min(start + (1 << page_shift), limit)]).digest()
        if blob[directory + hashes + 32 * page :][:32] != wanted:
            yield f"the hash of page {page}"
    for slot, place in slots.items():
        if 0 < slot <= special:
            content = blob[place : place + struct.unpack_from(">I", blob, place + 4)[0]]
            if blob[directory + hashes - 32 * slot :][:32] != hashlib.sha256(content).digest():
                yield f"the hash of slot {slot}"
    if version >= 0x20400:
        base, length, executable = struct.unpack_from(">3Q", blob, directory + 64)
        text = image.segment("__TEXT")
        # Linkers that sign during the link may name a part of __TEXT; it is kept.
        if base != text.offset or length > text.file_size or bool(executable & 1) != (image.kind == PROGRAM):
            yield f"an executable segment at {base:#x} of {length:#x} bytes with flags {executable:#x}"


def reader_faults(image, path, architecture):
    """Where LIEF reads other values."""
    wanted = {"arm64": lief.MachO.Header.CPU_TYPE.ARM64, "x86_64": lief.MachO.Header.CPU_TYPE.X86_64}[architecture]
    parsed = lief.MachO.parse(str(path))
    other = next((binary for binary in parsed or () if binary.header.cpu_type == wanted), None)
    if other is None:
        yield "LIEF does not read it"
        return
    problem = lief.MachO.check_layout(other)
    if problem is not True and not (isinstance(problem, tuple) and problem[0]):
        yield f"LIEF: {problem}"
    if image.entry() is not None and other.entrypoint != image.entry():
        yield f"entry at {image.entry():#x}; LIEF finds {other.entrypoint:#x}"
    starts = [image.base + offset for offset in other.function_starts.functions] if other.function_starts else []
    if starts != image.function_starts():
        yield f"{len(image.function_starts())} functions; LIEF finds {len(starts)}"
    exports = {symbol.name for symbol in other.symbols if symbol.has_export_info}
    if not set(image.exports()) <= exports:
        yield f"exports that LIEF does not find: {sorted(set(image.exports()) - exports)[:5]}"


def main():
    """Prints the errors; 1 when there is one."""
    path = pathlib.Path(sys.argv[1])
    architecture = sys.argv[2] if len(sys.argv) > 2 else "arm64"
    image = Image(path.read_bytes(), architecture)
    faults = [*signature_faults(image), *reader_faults(image, path, architecture)]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
