"""The contents of an image's tables, in forms that can be compared: unwinding, symbols, methods, initialisers."""

import bisect
import pathlib
import struct
import sys
from collections import namedtuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "emulator"))

from image import INIT_OFFSETS, SYMTAB, name_at, uleb  # noqa: E402

Unwinding = namedtuple("Unwinding", "encoding personality lsda")

REGULAR, COMPRESSED = 2, 3
HAS_LSDA = 0x40000000
STAB, SECTION, KIND = 0xE0, 0x0E, 0x0E


class UnwindInfo:
    """`__TEXT,__unwind_info`: looks up an address as a reader does."""

    def __init__(self, image):
        section = image.section("__TEXT", "__unwind_info")
        self.starts, self.encodings, self.lsdas, self.end = [], [], {}, 0
        self.base = image.base
        if section is None or section.size < 28:
            return
        data = image.content(section)
        _, common_at, common_count, personality_at, personality_count, index_at, index_count = struct.unpack_from("<7I", data)
        common = struct.unpack_from(f"<{common_count}I", data, common_at)
        self.personalities = struct.unpack_from(f"<{personality_count}I", data, personality_at)
        index = [struct.unpack_from("<3I", data, index_at + 12 * entry) for entry in range(index_count)]
        self.end = index[-1][0] if index else 0
        for function, page, _ in index[:-1]:
            self._page(data, function, page, common)
        if index:
            for at in range(index[0][2], index[-1][2], 8):
                function, lsda = struct.unpack_from("<2I", data, at)
                self.lsdas[function] = lsda

    def _page(self, data, first, page, common):
        kind, entries_at, entries, encodings_at, _ = struct.unpack_from("<I4H", data, page)
        for index in range(entries):
            if kind == REGULAR:
                function, encoding = struct.unpack_from("<2I", data, page + entries_at + 8 * index)
            else:
                if kind != COMPRESSED:
                    raise ValueError(f"a page of kind {kind}")
                word = struct.unpack_from("<I", data, page + entries_at + 4 * index)[0]
                function, number = first + (word & 0xFFFFFF), word >> 24
                own = number - len(common)
                encoding = common[number] if own < 0 else struct.unpack_from("<I", data, page + encodings_at + 4 * own)[0]
            self.starts.append(function)
            self.encodings.append(encoding)

    def at(self, address):
        """How a frame at this address is unwound."""
        offset = address - self.base
        index = bisect.bisect_right(self.starts, offset) - 1
        if index < 0 or offset >= self.end:
            return Unwinding(0, None, None)
        encoding = self.encodings[index]
        number = encoding >> 28 & 3
        lsda = self.lsdas.get(self.starts[index]) if encoding & HAS_LSDA else None
        # The number of the personality is only its index in a list that may have another order.
        return Unwinding(encoding & ~(3 << 28), self.personalities[number - 1] if number else None, lsda)


def frame_starts(image):
    """Offsets of the FDEs in `__eh_frame`, and the code address and length of each."""
    section = image.section("__TEXT", "__eh_frame")
    found = {}
    if section is None:
        return found
    data, at = image.content(section), 0
    encodings = {}
    while at + 4 <= len(data):
        length = struct.unpack_from("<I", data, at)[0]
        if not length:
            break
        cie = struct.unpack_from("<I", data, at + 4)[0]
        if not cie:
            encodings[at] = _pointer_encoding(data, at)
        else:
            wide = encodings[at + 4 - cie] & 0x0F in (0x00, 0x04, 0x0C)
            form, size = ("<q", 8) if wide else ("<i", 4)
            start = section.address + at + 8 + struct.unpack_from(form, data, at + 8)[0]
            found[at] = (start, struct.unpack_from(form, data, at + 8 + size)[0])
        at += 4 + length
    return found


def _pointer_encoding(data, at):
    end = data.index(b"\0", at + 9)
    augmentation, at = bytes(data[at + 9 : end]), end + 1
    for _ in range(3):  # alignment of code and data, return register
        _, at = uleb(data, at)
    if not augmentation.startswith(b"z"):
        return 0x10
    _, at = uleb(data, at)
    for letter in augmentation[1:]:
        if letter == ord("R"):
            return data[at]
        if letter == ord("P"):
            at += 9 if data[at] & 0x0F in (0x00, 0x04, 0x0C) else 5
        elif letter == ord("L"):
            at += 1
    return 0x10


def symbols(image):
    """Name, type, section, description and value of each symbol, in the order of the table."""
    at = image.command(SYMTAB)
    if at is None:
        return []
    table, count, strings, _ = struct.unpack_from("<4I", image.data, at + 8)
    return [
        (name_at(image.data, strings + name), kind, section, description, value)
        for name, kind, section, description, value in (
            struct.unpack_from("<IBBHQ", image.data, table + 16 * index) for index in range(count)
        )
    ]


def initialisers(image):
    """Addresses in sections of initialiser offsets."""
    return [
        image.base + offset
        for section in image.sections()
        if section.kind == INIT_OFFSETS
        for offset in struct.unpack(f"<{section.size // 4}I", image.content(section))
    ]


def method_implementations(image):
    """Place and code address of each method in a relative list, by a linear walk that skips padding between lists."""
    section = image.section("__TEXT", "__objc_methlist")
    found, at = {}, 0
    data = image.content(section) if section else b""
    while at + 8 <= len(data):
        flags, count = struct.unpack_from("<2I", data, at)
        if not flags & 0x80000000:
            at += 4
            continue
        for entry in range(at + 8, at + 8 + 12 * count, 12):
            place = section.address + entry + 8
            found[place] = place + struct.unpack_from("<i", data, entry + 8)[0]
        at += 8 + 12 * count
    return found
