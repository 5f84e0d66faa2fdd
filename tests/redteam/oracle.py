"""Knowledge of the linker that the command does not get: an image linked with its relocations and the compiler's labels states
for each word of data which place in the code it refers to. The image that is permuted has neither; each such word must
refer to the same place afterwards. This checks tables that no run reaches.
"""

import bisect
import collections
import os
import pathlib
import struct

# x86-64: distances of four and eight bytes, addresses of eight and four bytes.
DISTANCES = {2: "<i", 24: "<q"}
ADDRESSES = {1: "<Q", 10: "<I", 11: "<i"}
SHORT = {2, 10, 11}
EXECUTABLE, LOADED = 4, 2
COMPILE_FLAGS, LINK_FLAGS = ["-Wa,-L"], ["-Wl,--emit-relocs"]

Section = collections.namedtuple("Section", "name kind flags address offset size link info entry")
Word = collections.namedtuple("Word", "place form base target name")


class Image:
    """Sections, symbols and kept relocations of an ELF file for x86-64."""

    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        offset, = struct.unpack_from("<Q", self.data, 40)
        count, names = struct.unpack_from("<HH", self.data, 60)
        heads = [struct.unpack_from("<IIQQQQIIQQ", self.data, offset + 64 * at) for at in range(count)]
        strings = heads[names][4]
        self.sections = [Section(self.string(strings, head[0]), *head[1:8], head[9]) for head in heads]

    def string(self, table, at):
        """A string by its place in a table."""
        end = self.data.index(b"\0", table + at)
        return self.data[table + at:end].decode(errors="replace")

    def symbols(self):
        """Name, section and value of each symbol."""
        for section in self.sections:
            if section.kind == 2:
                strings = self.sections[section.link].offset
                for at in range(section.offset, section.offset + section.size, 24):
                    name, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
                    yield self.string(strings, name), index, value

    def relocations(self):
        """Section, place, type, symbol's value and addend of the kept relocations for words of data."""
        values = [value for _, _, value in self.symbols()]
        for section in self.sections:
            if section.kind != 4 or section.flags & LOADED or not 0 < section.info < len(self.sections):
                continue
            target = self.sections[section.info]
            # Places in unwind entries are not tables; throwing exceptions proves them.
            if not target.flags & LOADED or target.flags & EXECUTABLE or target.name.startswith((".eh_frame", ".gcc_except_table")):
                continue
            for at in range(section.offset, section.offset + section.size, 24):
                place, info, addend = struct.unpack_from("<QQq", self.data, at)
                yield target, place, info & 0xffffffff, values[info >> 32], addend

    def overwritten(self):
        """Places of words that the loader writes by a symbol, replacing the contents of the file."""
        places = set()
        for section in self.sections:
            if section.kind == 4 and section.flags & LOADED:
                for at in range(section.offset, section.offset + section.size, 24):
                    place, info = struct.unpack_from("<QQ", self.data, at)
                    if info >> 32:
                        places.add(place)
        return places

    def word(self, address, form):
        """The number at an address, or None where the file has none."""
        for section in self.sections:
            if section.flags & LOADED and section.kind != 8 and section.address <= address <= section.address + section.size - struct.calcsize(form):
                return struct.unpack_from(form, self.data, section.offset + address - section.address)[0]
        return None


def rewritten(full, before, after):
    """Words of read-only data that changed although no relocation is for them, in sentences."""
    truth, old, new = Image(full), Image(before), Image(after)
    covered = {place + step for _, place, kind, _, _ in truth.relocations() for step in range(4 if kind in SHORT else 8)}
    names = sorted((value, name) for name, _, value in truth.symbols() if name)
    for section in old.sections:
        if not section.name.startswith(".rodata") or not section.flags & LOADED:
            continue
        for address in range(section.address, section.address + section.size - 3, 4):
            was, now = old.word(address, "<I"), new.word(address, "<I")
            if was == now or not covered.isdisjoint(range(address, address + 4)):
                continue
            name = names[max(bisect.bisect_right(names, (address, "~")) - 1, 0)][1]
            # The assembler computes distances between functions of one section and leaves no relocation.
            if not name.endswith("_table"):
                yield f"word {address:#x} after {name} was {was:#x}, is {now:#x}, and is no address"


def words(path):
    """The words of data that refer to places in the code, by the relocations of a full image."""
    image = Image(path)
    code = [(section.address, section.address + section.size) for section in image.sections if section.flags & EXECUTABLE]
    names, starts = collections.defaultdict(list), collections.defaultdict(list)
    # Values in sections that are not loaded, such as lists of locations, are not addresses.
    loaded = {index for index, section in enumerate(image.sections) if section.flags & LOADED}
    for name, index, value in image.symbols():
        if name and index in loaded:
            names[value].append(name)
            starts[index].append(value)
    overwritten = image.overwritten()
    labels = sorted({value for values in starts.values() for value in values})
    relocations = list(image.relocations())
    # The relocation of a table's entry gives the distance from the entry to its target; only labels of the compiler tell where
    # the table begins, and libraries compiled without them have none. So the label before an entry is the table's only if the
    # words from it to the entry are distances to labels. The next object's table may follow without a gap.
    table = None
    for _, place, kind, value, addend in sorted(relocations, key=lambda found: found[1]):
        if kind in DISTANCES:
            number = image.word(place, DISTANCES[kind])
            base = labels[max(bisect.bisect_right(labels, place) - 1, 0)]
            is_entry = base == place or table == (base, place)
            if is_entry and number is not None and local(names[base]) and local(names.get(base + number, [])) and inside(code, base + number):
                yield Word(place, DISTANCES[kind], base, base + number, names[base + number][0])
                table = base, place + struct.calcsize(DISTANCES[kind])
        elif kind in ADDRESSES and place not in overwritten and inside(code, value + addend) and image.word(place, ADDRESSES[kind]) == value + addend:
            yield Word(place, ADDRESSES[kind], 0, value + addend, names.get(value + addend, ["?"])[0])


def local(found):
    """Whether a compiler's own label is among the names."""
    return any(name.startswith(".L") for name in found)


def inside(ranges, address):
    """Whether the address lies in one of the ranges."""
    return any(start <= address < end for start, end in ranges)


class Moves:
    """The new addresses of the functions, by the address map of the command."""

    def __init__(self, path):
        rows = [line.split() for line in pathlib.Path(path).read_text().splitlines()]
        found = sorted((int(row[1], 16), int(row[2], 16), int(row[3], 16), row[4] if len(row) > 4 else "?") for row in rows if row[:1] == ["move"])
        self.starts, self.rows = [row[0] for row in found], found
        self.beginnings = set(self.starts)
        self.ends = {old + size for old, _, size, _ in found} - self.beginnings

    def at(self, address):
        """The new address and the name of the function, or the same address if it did not move."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0:
            old, new, size, name = self.rows[index]
            if address < old + size:
                return address - old + new, name
        return address, "what stays"


def stale(known, moved, moves):
    """Words that no longer refer to the same place, in sentences."""
    image = Image(moved)
    for word in known:
        if word.base and (word.target in moves.beginnings or word.target in moves.ends):
            # A case that is never taken may refer to the end of its function, which may be where the next one begins.
            continue
        target, name = moves.at(word.target)
        number = image.word(word.place, word.form)
        if number is not None and word.base + number != target:
            yield f"word {word.place:#x} of base {word.base:#x} stood for {word.target:#x} ({word.name} in {name}), is {word.base + number:#x}, should be {target:#x}"


def strip_command(full, output, build):
    """How the image is made from the full one: labels are removed, and relocations unless the build keeps them."""
    words_ = ["objcopy", "--strip-all" if build.stripped else "--discard-locals"]
    if not build.kind.endswith("relocs"):
        kept = [section.name for section in Image(full).sections if section.kind == 4 and not section.flags & LOADED]
        words_ += [word for name in kept for word in ("--remove-section", name)]
    return [*words_, os.fspath(full), os.fspath(output)]
