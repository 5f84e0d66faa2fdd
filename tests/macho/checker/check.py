"""Checks a relocated image by its map, with code that shares nothing with the relocator.

Usage: check.py OLD NEW MAP ARCHITECTURE

Every instruction of the text is decoded in both images: each target of the old one, taken through the map, must be the
target of the new one, and everything else must be equal. Likewise for pointers, exports, symbols, function starts, the
entry, initialisers, methods, frames and unwinding. Prints one line with the counts; 1 and the first faults when it is wrong.
"""

import collections
import pathlib
import struct
import sys

import capstone

import arm64
import tables
from fixups import Rebase, fixups
from image import Image
from moves import Moves

# An ADRP and the instruction that adds to it are within this many instructions, if they are one pair.
PAIR_DISTANCE = 256

# Stabs with an address of code: a function's start, the begin and the end of its symbols.
CODE_STABS = (0x24, 0x2E, 0x4E)
END_OF_FUNCTION = 0x4E

# Code besides `__text`: it stays, and branches into the text. GCC adds __text_cold, __text_startup, __text_exit and more.
CODE_SECTIONS = ("__stub_helper", "__lcxx_override", "__init")


def is_other_code(name):
    """Whether the section of `__TEXT` is code besides `__text`."""
    return name in CODE_SECTIONS or name.startswith("__text_")


class Check:
    """One comparison."""

    def __init__(self, old, new, moves):
        self.old, self.new, self.moves = old, new, moves
        self.faults, self.counts = [], collections.Counter()
        section = old.section("__TEXT", "__text")
        self.start, self.end = section.address, section.address + section.size
        self.text = old.content(section)
        self.after = new.content(new.section("__TEXT", "__text"))

    def fault(self, text):
        """Records an error."""
        self.faults.append(text)

    def expect(self, kind, place, wanted, found):
        """Two values that must be equal."""
        self.counts[kind] += 1
        if wanted != found:
            self.fault(f"{kind} at {place}: {wanted} wanted, {found} found")

    def pieces(self):
        """Old address, new address and size of all text, moved or not."""
        at = self.start
        for old, new, size in self.moves.ranges:
            if old > at:
                yield at, at, old - at
            yield old, new, size
            at = old + size
        if at < self.end:
            yield at, at, self.end - at

    def code_arm64(self):
        """Every word of the text."""
        for old, new, size in self.pieces():
            pages, before = {}, {}
            for offset in range(0, size & ~3, 4):
                here, there = old + offset, new + offset
                one = struct.unpack_from("<I", self.text, here - self.start)[0]
                other = struct.unpack_from("<I", self.after, there - self.start)[0]
                self._word(one, other, here, there, pages, before)
        self._code_elsewhere()

    def _code_elsewhere(self):
        """Branches of other executable sections into the text."""
        for section in self.old.sections():
            if section.segment != "__TEXT" or not is_other_code(section.name):
                continue
            one, other = self.old.content(section), self.new.content(self.new.section(section.segment, section.name))
            pages, before = {}, {}
            for at in range(0, section.size & ~3, 4):
                address = section.address + at
                words = struct.unpack_from("<I", one, at)[0], struct.unpack_from("<I", other, at)[0]
                self._word(*words, address, address, pages, before)

    def _word(self, one, other, here, there, pages, before):
        left, right = arm64.reference(one, here), arm64.reference(other, there)
        self.counts["words"] += 1
        if left is None or right is None:
            self._plain(one, other, here, left, right, pages)
            return
        if left[0] == "page" and right[0] == "page" and left[1] == right[1]:
            pages[one & 31] = here, left[2], right[2]
            inside = left[2] < self.end and left[2] + 0x1000 > self.start
            if not inside:
                self.expect("pages", f"{here:#x}", left[2], right[2])
            return
        if left[0] == "address" and right[0] == "page" and one & 31 == other & 31:
            # Relaxed code is expanded again: the instruction that adds the low part replaces a NOP.
            before[one & 31] = here, left[2], right[2]
            self.counts["expanded"] += 1
            return
        wanted = self.moves.new(left[2])
        if left[:2] != right[:2] or wanted != right[2]:
            # A word of data may look like an instruction: it is unchanged in pinned code.
            if one == other and here == there:
                self.counts["like code"] += 1
                return
            self.fault(f"{left[0]} at {here:#x} (now {there:#x}) to {left[2]:#x}: {wanted:#x} wanted, {right[2]:#x} found")
        self.counts["references"] += 1

    def _plain(self, one, other, here, left, right, pages):
        low_one, low_other = arm64.low_part(one), arm64.low_part(other)
        if low_one and low_other and low_one[0] == low_other[0] and low_one[0] in pages:
            place, page_one, page_other = pages[low_one[0]]
            target, found = page_one + low_one[1], page_other + low_other[1]
            if here - place <= 4 * PAIR_DISTANCE and (one ^ other) & ~arm64.LOW_FIELD == 0:
                if self.moves.new(target) == found:
                    self.counts["pairs"] += 1
                    return
                # Far from its page the register may hold another value: only an adjacent use is certain.
                if here - place == 4 or one != other:
                    self.fault(f"pair at {here:#x} to {target:#x}: {self.moves.new(target):#x} wanted, {found:#x} found")
                else:
                    self.counts["uncertain pairs"] += 1
                return
        if one == other:
            if one & 31 in pages and low_one is None and one & 0x1F == 31:
                pages.pop(31, None)
            return
        if one == arm64.NOP and (low_other or (right and right[0] == "page")):
            self.counts["expanded"] += 1
            return
        if left and left[0] == "literal" and low_other:
            self.counts["expanded"] += 1
            return
        self.fault(f"word at {here:#x}: {one:#010x} wanted, {other:#010x} found")

    def code_x86_64(self):
        """Every instruction from each function start on, until bytes do not decode."""
        decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        starts = self.old.function_starts()
        # Other tables may have given more bounds than the list of starts.
        starts += [edge for old, _, size in self.moves.ranges for edge in (old, old + size)]
        bounds = sorted({*(s for s in starts if self.start <= s < self.end), self.start, self.end})
        for start, end in zip(bounds, bounds[1:]):
            new = self.moves.new(start)
            one = bytes(self.text[start - self.start : end - self.start])
            other = bytes(self.after[new - self.start : new - self.start + len(one)])
            pairs = zip(decoder.disasm_lite(one, start), decoder.disasm_lite(other, new))
            for (here, size, mnemonic, operands), (there, other_size, other_mnemonic, other_operands) in pairs:
                self.counts["instructions"] += 1
                if (size, mnemonic) != (other_size, other_mnemonic):
                    self.fault(f"instruction at {here:#x}: {mnemonic} wanted, {other_mnemonic} found")
                    break
                if operands != other_operands or self._relative(mnemonic, operands):
                    self._operands(mnemonic, operands, other_operands, here, there, size, one, other, start)

    @staticmethod
    def _relative(mnemonic, operands):
        return "[rip" in operands or (mnemonic[0] in "jcl" and operands.startswith("0x"))

    def _operands(self, mnemonic, operands, other_operands, here, there, size, one, other, start):
        left, right = self._target(operands, here + size), self._target(other_operands, there + size)
        if left is None or right is None:
            if self._is_inside_another(here - start, size, one, other, start, there - here):
                self.counts["misread"] += 1
                return
            self.fault(f"operands of {mnemonic} at {here:#x}: {operands} wanted, {other_operands} found")
            return
        self.counts["references"] += 1
        if self.moves.new(left) != right:
            at = here - start
            same = one[at : at + size] == other[at : at + size]
            # A table in the text decodes as something, too: it stays as it is, or names what no image has.
            if same and (here == there or not self.old.base <= left < self.old.end):
                self.counts["like code"] += 1
                return
            self.fault(f"{mnemonic} at {here:#x} to {left:#x}: {self.moves.new(left):#x} wanted, {right:#x} found")

    def _is_inside_another(self, at, size, one, other, start, delta):
        """Whether the bytes end one instruction that refers to the same: the table before it was decoded as code, too."""
        decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        for first in range(max(at - 3, 0), at):
            length = at + size - first
            pair = [
                next(decoder.disasm_lite(code[first : first + length], start + first + moved), None)
                for code, moved in ((one, 0), (other, delta))
            ]
            if any(found is None or found[1] != length for found in pair) or pair[0][2] != pair[1][2]:
                continue
            left, right = (self._target(found[3], found[0] + length) for found in pair)
            if left is not None and right is not None and self.moves.new(left) == right:
                return True
        return False

    @staticmethod
    def _target(operands, after):
        if operands.startswith("0x"):
            return int(operands, 16)
        if "[rip" not in operands:
            return None
        distance = operands.split("[rip", 1)[1].split("]", 1)[0].replace(" ", "")
        return (after + (int(distance, 16) if distance else 0)) % (1 << 64)

    def everything_else(self):
        """All tables."""
        old, new, moves = self.old, self.new, self.moves
        for fault in moves.faults(self.start, self.end):
            self.fault(fault)
        for one, other in zip(fixups(old), fixups(new), strict=True):
            wanted = one._replace(target=moves.new(one.target)) if isinstance(one, Rebase) else one
            self.expect("fixups", f"{one.slot:#x}", wanted, other)
        self.expect("entries", "the command", old.entry() and moves.new(old.entry()), new.entry())
        self.expect("starts", "the list", sorted(map(moves.new, old.function_starts())), new.function_starts())
        one, other = old.exports(), new.exports()
        self.expect("exports", "the trie", {name: moves.new(address) for name, address in one.items()}, other)
        sections = [section.name == "__text" for section in old.sections()]
        for one, other in zip(tables.symbols(old), tables.symbols(new), strict=True):
            name, kind, section, description, value = one
            inside = 0 < section <= len(sections) and sections[section - 1]
            code = inside and (kind in CODE_STABS if kind & tables.STAB else kind & 0x0E == 0x0E)
            if kind == END_OF_FUNCTION and other[4] == value:
                code = False  # some linkers put the size there
            wanted = name, kind, section, description, moves.new(value) if code else value
            self.expect("symbols", name, wanted, other)
        self.expect("initialisers", "the list", [moves.new(a) for a in tables.initialisers(old)], tables.initialisers(new))
        one, other = tables.method_implementations(old), tables.method_implementations(new)
        self.expect("methods", "the lists", {place: moves.new(code) for place, code in one.items()}, other)
        one, other = tables.frame_starts(old), tables.frame_starts(new)
        wanted = {at: (moves.new(start), length) for at, (start, length) in one.items()}
        self.expect("frames", "__eh_frame", sorted(wanted.items()), sorted(other.items()))
        one, other = tables.UnwindInfo(old), tables.UnwindInfo(new)
        for start in old.function_starts():
            if self.start <= start < self.end:
                self.expect("unwinding", f"{start:#x}", one.at(start), other.at(moves.new(start)))

    def data(self):
        """Sections without references to code are the same; in others every word that differs is explained."""
        slots = {fixup.slot for fixup in fixups(self.old)}
        explained = {"__text", "__unwind_info", "__eh_frame", "__objc_methlist", "__init_offsets"}
        for one, other in zip(self.old.sections(), self.new.sections(), strict=True):
            size = one.size
            if one.name == "__unwind_info" and size < other.size:
                # It may use the space up to the next section.
                following = [s.address for s in self.old.sections() if s.address > one.address]
                size = min(other.size, min(following, default=0) - one.address)
            self.expect("sections", one.name, (one.address, size, one.kind), (other.address, other.size, other.kind))
            if one.name in explained or is_other_code(one.name) or one.kind in (1, 0xC, 0x12):
                continue
            left, right = self.old.content(one), self.new.content(other)
            if left == right:
                continue
            at = 0
            while at < len(left):
                if left[at] == right[at] or one.address + at & ~7 in slots or one.address + at - 4 & ~7 in slots:
                    at += 1
                    continue
                at = self._distance(one, left, right, at)

    def _distance(self, section, left, right, at):
        """Explains a byte that differs as part of a distance to code that moved; gives the offset at which to continue.

        A distance is relative to its own place, or to the start of a table that is before it. Names of Swift's types
        hold some at places that are not aligned.
        """
        for start in range(max(at - 3, 0), min(at, len(left) - 4) + 1):
            place = section.address + start
            before, after = struct.unpack_from("<i", left, start)[0], struct.unpack_from("<i", right, start)[0]
            if self.moves.new(place + before) == place + after:
                self.counts["distances"] += 1
                return start + 4
            bases = range(place - 4, place - 4096, -4) if place % 4 == 0 else ()
            if any(self.moves.new(base + before) == base + after for base in bases):
                self.counts["table words"] += 1
                return start + 4
        self.fault(f"byte of {section.name} at {section.address + at:#x}: {left[at]:#x} and {right[at]:#x}")
        return at + 4


def main():
    """Prints what was compared, or the errors."""
    old, new, moves, architecture = sys.argv[1:5]
    images = [Image(pathlib.Path(path).read_bytes(), architecture) for path in (old, new)]
    check = Check(*images, Moves(moves))
    if architecture == "arm64":
        check.code_arm64()
    else:
        check.code_x86_64()
    check.everything_else()
    check.data()
    if check.faults:
        print(f"{len(check.faults)} faults: " + "; ".join(fault[:200] for fault in check.faults[:4]))
        return 1
    print(" ".join(f"{kind}={count}" for kind, count in sorted(check.counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
