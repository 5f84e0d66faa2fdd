"""Which functions of an image run first, and which pages of its text a run touches."""

from unicorn.unicorn_const import UC_HOOK_BLOCK


class Trace:
    """Watches the blocks of `__TEXT,__text` of one loaded image."""

    # The unit in which arm64 macOS reads a file into memory.
    PAGE = 0x4000

    def __init__(self, machine, image, slide):
        self.image, self.slide = image, slide
        self.blocks = {}
        text = image.section("__TEXT", "__text")
        start = text.address + slide
        machine.cpu.hook_add(UC_HOOK_BLOCK, self._block, begin=start, end=start + text.size - 1)

    def _block(self, _cpu, address, size, _):
        if address not in self.blocks:
            self.blocks[address] = size

    def functions(self):
        """Addresses of functions in the order in which they first ran."""
        found = dict.fromkeys(self.image.function_of(address - self.slide) for address in self.blocks)
        found.pop(None, None)
        return list(found)

    def pages(self):
        """Numbers of the pages that hold an executed instruction."""
        found = set()
        for address, size in self.blocks.items():
            first, last = address - self.slide, address - self.slide + max(size, 1) - 1
            found.update(range(first // self.PAGE, last // self.PAGE + 1))
        return found
