"""Walks the fixups of an image: opcodes and chained fixups of formats 2 and 6.

Each walk gives (address of the slot, symbol, addend, weak) for a bind and (address of the slot, target) for a rebase; all
addresses are without slide.
"""

import struct
from collections import namedtuple

from image import CHAINED_FIXUPS, DYLD_INFO, DYLD_INFO_ONLY, BadImage, name_at, sleb, uleb

Rebase = namedtuple("Rebase", "slot target")
Bind = namedtuple("Bind", "slot symbol addend weak")

POINTER_64, POINTER_64_OFFSET = 2, 6
NO_CHAIN, SEVERAL_STARTS = 0xFFFF, 0x8000


def fixups(image):
    """All rebases and binds of an image."""
    if image.command(CHAINED_FIXUPS) is not None:
        yield from chained(image)
    at = image.command(DYLD_INFO, DYLD_INFO_ONLY)
    if at is None:
        return
    numbers = struct.unpack_from("<8I", image.data, at + 8)
    rebase, bind, weak, lazy = (image.data[numbers[i] : numbers[i] + numbers[i + 1]] for i in (0, 2, 4, 6))
    for slot in rebase_slots(image, rebase):
        yield Rebase(slot, word_at(image, slot))
    yield from binds(image, bind, False)
    yield from binds(image, weak, True)
    yield from binds(image, lazy, False)


def word_at(image, address):
    """The eight bytes at an address in the file."""
    for segment in image.segments:
        offset = address - segment.address
        if 0 <= offset <= segment.file_size - 8:
            return struct.unpack_from("<Q", image.data, segment.offset + offset)[0]
    raise BadImage(f"a slot at {address:#x} that no segment has")


def rebase_slots(image, code):
    """The slots that a stream of rebase opcodes names."""
    at = slot = 0
    while at < len(code):
        opcode, immediate = code[at] & 0xF0, code[at] & 0x0F
        at += 1
        count, skip = 0, 0
        if opcode == 0x00:
            return
        if opcode == 0x10:
            if immediate != 1:
                raise BadImage(f"a rebase of type {immediate}")
        elif opcode == 0x20:
            offset, at = uleb(code, at)
            slot = image.segments[immediate].address + offset
        elif opcode == 0x30:
            offset, at = uleb(code, at)
            slot = (slot + offset) % (1 << 64)
        elif opcode == 0x40:
            slot += 8 * immediate
        elif opcode == 0x50:
            count = immediate
        elif opcode == 0x60:
            count, at = uleb(code, at)
        elif opcode == 0x70:
            skip, at = uleb(code, at)
            count = 1
        elif opcode == 0x80:
            count, at = uleb(code, at)
            skip, at = uleb(code, at)
        else:
            raise BadImage(f"a rebase opcode {opcode:#x}")
        for _ in range(count):
            yield slot
            slot += 8 + skip


def binds(image, code, weak):
    """The slots of a stream of bind opcodes. In lazy streams an end opcode follows each symbol: it is ignored."""
    at = slot = addend = 0
    symbol, optional = None, weak
    while at < len(code):
        opcode, immediate = code[at] & 0xF0, code[at] & 0x0F
        at += 1
        count, skip = 0, 0
        if opcode in (0x00, 0x10, 0x30, 0x50):
            pass  # the end, the library by a short number, a special one, the type
        elif opcode == 0x20:
            _, at = uleb(code, at)
        elif opcode == 0x40:
            symbol, optional = name_at(code, at), weak or bool(immediate & 1)
            at += len(symbol.encode()) + 1
        elif opcode == 0x60:
            addend, at = sleb(code, at)
        elif opcode == 0x70:
            offset, at = uleb(code, at)
            slot = image.segments[immediate].address + offset
        elif opcode == 0x80:
            offset, at = uleb(code, at)
            slot = (slot + offset) % (1 << 64)
        elif opcode == 0x90:
            count = 1
        elif opcode == 0xA0:
            skip, at = uleb(code, at)
            count = 1
        elif opcode == 0xB0:
            count, skip = 1, 8 * immediate
        elif opcode == 0xC0:
            count, at = uleb(code, at)
            skip, at = uleb(code, at)
        else:
            raise BadImage(f"a bind opcode {opcode:#x}")
        for _ in range(count):
            yield Bind(slot, symbol, addend, optional)
            slot = (slot + 8 + skip) % (1 << 64)


def chained(image):
    """Follows each chain of each page."""
    blob = image.linkedit(CHAINED_FIXUPS)
    _, starts, _, _, _, form, _ = struct.unpack_from("<7I", blob)
    imports = chained_imports(blob)
    if form not in (1, 2, 3):
        raise BadImage(f"imports of format {form}")
    for index in range(struct.unpack_from("<I", blob, starts)[0]):
        offset = struct.unpack_from("<I", blob, starts + 4 + 4 * index)[0]
        if not offset:
            continue
        at = starts + offset
        _, page_size, pointer, segment_offset, _, pages = struct.unpack_from("<IHHQIH", blob, at)
        if pointer not in (POINTER_64, POINTER_64_OFFSET):
            raise BadImage(f"chained pointers of format {pointer}")
        for page, start in enumerate(struct.unpack_from(f"<{pages}H", blob, at + 22)):
            if start == NO_CHAIN:
                continue
            if start & SEVERAL_STARTS:
                raise BadImage("a page with several chains")
            slot = image.base + segment_offset + page * page_size + start
            while True:
                word = word_at(image, slot)
                if word >> 63:
                    symbol, addend, weak = imports[word & 0xFFFFFF]
                    yield Bind(slot, symbol, addend + (word >> 24 & 0xFF), weak)
                else:
                    target = (word & 0xFFFFFFFFF) + (image.base if pointer == POINTER_64_OFFSET else 0)
                    yield Rebase(slot, target | (word >> 36 & 0xFF) << 56)
                step = word >> 51 & 0xFFF
                if not step:
                    break
                slot += 4 * step


def chained_imports(blob):
    """Names, addends and weakness of the imports, by number."""
    _, _, table, symbols, count, form, _ = struct.unpack_from("<7I", blob)
    found = []
    for index in range(count):
        if form == 3:
            word, addend = struct.unpack_from("<Qq", blob, table + 16 * index)
            weak, name = word >> 16 & 1, word >> 32
        else:
            size = 4 if form == 1 else 8
            word = struct.unpack_from("<I", blob, table + size * index)[0]
            addend = struct.unpack_from("<i", blob, table + size * index + 4)[0] if form == 2 else 0
            weak, name = word >> 8 & 1, word >> 9
        found.append((name_at(blob, symbols + name), addend, bool(weak)))
    return found
