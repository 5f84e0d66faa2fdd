"""Reads what a loader needs from a Mach-O image: segments, commands, symbols and exports."""

import bisect
import struct
from dataclasses import dataclass, field

ARCHITECTURES = {"arm64": 0x0100000C, "x86_64": 0x01000007}
UNIVERSAL = 0xCAFEBABE
MACH_O_64 = 0xFEEDFACF

SEGMENT_64, SYMTAB, MAIN, FUNCTION_STARTS = 0x19, 0x2, 0x80000028, 0x26
DYLD_INFO, DYLD_INFO_ONLY, EXPORTS_TRIE, CHAINED_FIXUPS = 0x22, 0x80000022, 0x80000033, 0x80000034

# Types of sections.
ZEROFILL, INIT_POINTERS = 0x1, 0x9
THREAD_DATA, THREAD_ZEROFILL, THREAD_VARIABLES, INIT_OFFSETS = 0x11, 0x12, 0x13, 0x16


class BadImage(Exception):
    """The image cannot be loaded; the text says why."""


@dataclass
class Section:
    """One section; the address is without slide."""

    segment: str
    name: str
    address: int
    size: int
    offset: int
    kind: int


@dataclass
class Segment:
    """One segment; the address is without slide."""

    name: str
    address: int
    size: int
    offset: int
    file_size: int
    sections: list = field(default_factory=list)


def name_at(data, offset):
    """The string that ends with the next zero byte."""
    return bytes(data[offset : data.index(b"\0", offset)]).decode()


def uleb(data, at):
    """An unsigned LEB128 number and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def sleb(data, at):
    """A signed LEB128 number and the offset after it."""
    start = at
    value, at = uleb(data, at)
    bits = 7 * (at - start)
    return (value - (1 << bits) if data[at - 1] & 0x40 else value), at


def slice_of(data, architecture):
    """The part of a universal file for one architecture; other files unchanged."""
    if struct.unpack_from(">I", data)[0] != UNIVERSAL:
        return data
    for index in range(struct.unpack_from(">I", data, 4)[0]):
        kind, _, offset, size, _ = struct.unpack_from(">5I", data, 8 + 20 * index)
        if kind == ARCHITECTURES[architecture]:
            return data[offset : offset + size]
    raise BadImage(f"no slice for {architecture}")


class Image:
    """A linked image of one architecture. All addresses are those of the file, without slide."""

    def __init__(self, data, architecture="arm64"):
        self.data = slice_of(data, architecture)
        magic, kind, _, self.kind, count, _, _, _ = struct.unpack_from("<8I", self.data)
        if magic != MACH_O_64 or kind != ARCHITECTURES[architecture]:
            raise BadImage(f"not a 64-bit image for {architecture}")
        self.commands = []
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<2I", self.data, at)
            self.commands.append((command, at))
            at += size
        self.segments = [self._segment(at) for command, at in self.commands if command == SEGMENT_64]
        self.base = self.segment("__TEXT").address
        self.end = max(segment.address + segment.size for segment in self.segments)

    def _segment(self, at):
        name, address, size, offset, file_size = struct.unpack_from("<16s4Q", self.data, at + 8)
        segment = Segment(name.rstrip(b"\0").decode(), address, size, offset, file_size)
        for index in range(struct.unpack_from("<I", self.data, at + 64)[0]):
            entry = struct.unpack_from("<16s16s2Q8I", self.data, at + 72 + 80 * index)
            names = [part.rstrip(b"\0").decode() for part in (entry[1], entry[0])]
            segment.sections.append(Section(*names, entry[2], entry[3], entry[4], entry[8] & 0xFF))
        return segment

    def segment(self, name):
        """The segment of that name."""
        for segment in self.segments:
            if segment.name == name:
                return segment
        raise BadImage(f"no segment {name}")

    def sections(self):
        """All sections in the order of the file."""
        return [section for segment in self.segments for section in segment.sections]

    def section(self, segment, name):
        """The section of these names, or None."""
        return next((s for s in self.sections() if (s.segment, s.name) == (segment, name)), None)

    def content(self, section):
        """The bytes of a section as the file has them."""
        return self.data[section.offset : section.offset + section.size]

    def command(self, *kinds):
        """The offset of the first command of one of these kinds, or None."""
        return next((at for kind, at in self.commands if kind in kinds), None)

    def linkedit(self, *kinds):
        """The bytes that a command with only an offset and a size refers to, or None."""
        at = self.command(*kinds)
        if at is None:
            return None
        offset, size = struct.unpack_from("<2I", self.data, at + 8)
        return self.data[offset : offset + size]

    def entry(self):
        """The entry point of a program, or None for a library."""
        at = self.command(MAIN)
        return None if at is None else self.base + struct.unpack_from("<Q", self.data, at + 8)[0]

    def function_starts(self):
        """Sorted addresses of LC_FUNCTION_STARTS."""
        data = self.linkedit(FUNCTION_STARTS) or b""
        starts, address, at = [], self.base, 0
        while at < len(data):
            delta, at = uleb(data, at)
            if not delta:
                break
            address += delta
            starts.append(address)
        return starts

    def symbol_addresses(self):
        """Sorted addresses of the symbols that are defined in sections."""
        at = self.command(SYMTAB)
        if at is None:
            return []
        table, count = struct.unpack_from("<2I", self.data, at + 8)
        symbols = (struct.unpack_from("<IBBHQ", self.data, table + 16 * index) for index in range(count))
        # Not a stab, and of the type "in a section".
        return sorted({value for _, kind, _, _, value in symbols if not kind & 0xE0 and kind & 0x0E == 0x0E})

    def function_of(self, address):
        """The last function start at or before an address, or None; symbols replace an empty list."""
        if not hasattr(self, "_starts"):
            self._starts = self.function_starts() or self.symbol_addresses()
        index = bisect.bisect_right(self._starts, address)
        return self._starts[index - 1] if index else None

    def exports(self):
        """Names and addresses of the export trie."""
        trie = self.linkedit(EXPORTS_TRIE)
        at = self.command(DYLD_INFO, DYLD_INFO_ONLY)
        if trie is None and at is not None:
            offset, size = struct.unpack_from("<2I", self.data, at + 40)
            trie = self.data[offset : offset + size]
        found, waiting = {}, [(0, b"")] if trie else []
        while waiting:
            node, prefix = waiting.pop()
            size, node = uleb(trie, node)
            if size:
                flags, value = uleb(trie, node)
                if not flags & 0x8:  # a re-export has no address
                    address, _ = uleb(trie, value)
                    found[prefix.decode()] = address if flags & 3 == 2 else self.base + address
            node += size
            count = trie[node]
            node += 1
            for _ in range(count):
                end = trie.index(b"\0", node)
                label = bytes(trie[node:end])
                child, node = uleb(trie, end + 1)
                waiting.append((child, prefix + label))
        return found
