"""PC-relative instructions of arm64, by the encodings of the Arm Architecture Reference Manual (C4.1)."""


def signed(value, bits):
    """A field of that many bits as a signed number."""
    return value - (1 << bits) if value >> (bits - 1) else value


def reference(word, address):
    """Kind, kept bits and target of a PC-relative instruction, or None."""
    if word & 0x7C000000 == 0x14000000:
        return "branch", word & 0xFC000000, address + 4 * signed(word & 0x3FFFFFF, 26)
    if word & 0xFF000000 == 0x54000000 or word & 0x7E000000 == 0x34000000:
        return "conditional", word & 0xFF00001F, address + 4 * signed(word >> 5 & 0x7FFFF, 19)
    if word & 0x7E000000 == 0x36000000:
        return "test", word & 0xFFF8001F, address + 4 * signed(word >> 5 & 0x3FFF, 14)
    if word & 0x3B000000 == 0x18000000:
        return "literal", word & 0xFF00001F, address + 4 * signed(word >> 5 & 0x7FFFF, 19)
    if word & 0x1F000000 == 0x10000000:
        distance = signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
        if word >> 31:
            return "page", word & 0x9F00001F, (address & ~0xFFF) + (distance << 12)
        return "address", word & 0x9F00001F, address + distance
    return None


def low_part(word):
    """The register an ADD or an unsigned-offset load or store reads, and the bytes its immediate adds, or None."""
    if word & 0xFFC00000 == 0x91000000:
        return word >> 5 & 31, word >> 10 & 0xFFF
    if word & 0x3B000000 == 0x39000000:
        scale = word >> 30
        if word & 0x04800000 == 0x04800000:  # a vector register of 16 bytes
            scale = 4
        return word >> 5 & 31, (word >> 10 & 0xFFF) << scale
    return None


# The bits of the immediate of what `low_part` accepts.
LOW_FIELD = 0xFFF << 10
NOP = 0xD503201F
