"""A process of macOS in Unicorn: memory, images, the library's few calls, and the entry into the program."""

import struct
import sys

import unicorn
from unicorn import arm64_const, x86_const
from unicorn.unicorn_const import UC_ARCH_ARM64, UC_ARCH_X86, UC_HOOK_CODE, UC_HOOK_INSN, UC_HOOK_INTR
from unicorn.unicorn_const import UC_HOOK_MEM_INVALID, UC_MODE_64, UC_MODE_ARM, UC_PROT_ALL

from fixups import Rebase, fixups
from image import INIT_OFFSETS, INIT_POINTERS, THREAD_DATA, THREAD_VARIABLES, THREAD_ZEROFILL

PAGE = 0x4000
# No image is loaded where it was linked: a pointer without its rebase is invalid.
SLIDE = 0x40_0000_0000
IMAGE_STEP = 0x10_0000_0000
ARENA, ARENA_SIZE = 0x10_0000_0000, 2 << 30
# Data that the emulator puts into the process: strings, vectors, blocks of thread-local variables.
OURS, OURS_SIZE = 0x18_0000_0000, 16 << 20
STACK, STACK_SIZE = 0x20_0000_0000, 64 << 20
# Each undefined function gets an address here that returns zero.
MISSING, MISSING_SIZE, MISSING_STEP = 0x30_0000_0000, 1 << 20, 16
# Return address of calls from outside.
RETURN = MISSING + MISSING_SIZE
EXIT, READ, WRITE = 1, 3, 4

ZERO = {"arm64": bytes.fromhex("000080d2c0035fd6"), "x86_64": bytes.fromhex("31c0c3")}


class Fault(Exception):
    """The program did something that the emulator does not support."""


class Machine:
    """One process. `load` the images, libraries first, then `run` a program or `call` a function."""

    def __init__(self, architecture):
        self.architecture = architecture
        self.arm = architecture == "arm64"
        if self.arm:
            self.cpu = unicorn.Uc(UC_ARCH_ARM64, UC_MODE_ARM)
            # The default model lacks instructions that compilers for Apple's processors use, such as LDAPR.
            self.cpu.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
            self.cpu.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)
            self.cpu.hook_add(UC_HOOK_INTR, self._interrupt)
            names = ["X0", "X1", "X2", "X3", "X4", "X5"]
            self.parameters = [getattr(arm64_const, f"UC_ARM64_REG_{name}") for name in names]
            self.stack_pointer, self.counter = arm64_const.UC_ARM64_REG_SP, arm64_const.UC_ARM64_REG_PC
        else:
            self.cpu = unicorn.Uc(UC_ARCH_X86, UC_MODE_64)
            self.cpu.hook_add(UC_HOOK_INSN, self._system_call, None, 1, 0, x86_const.UC_X86_INS_SYSCALL)
            self.cpu.hook_add(UC_HOOK_INTR, self._interrupt)
            names = ["RDI", "RSI", "RDX", "RCX", "R8", "R9"]
            self.parameters = [getattr(x86_const, f"UC_X86_REG_{name}") for name in names]
            self.stack_pointer, self.counter = x86_const.UC_X86_REG_RSP, x86_const.UC_X86_REG_RIP
        self.result = self.parameters[0] if self.arm else x86_const.UC_X86_REG_RAX
        self.cpu.hook_add(UC_HOOK_MEM_INVALID, self._invalid)
        for start, size in ((ARENA, ARENA_SIZE), (OURS, OURS_SIZE), (STACK, STACK_SIZE), (MISSING, MISSING_SIZE + PAGE)):
            self.cpu.mem_map(start, size, UC_PROT_ALL)
        self.ours, self.stack = OURS, STACK + STACK_SIZE - PAGE
        self.images, self.symbols, self.missing, self.called_missing = [], {}, {}, set()
        self.status, self.fault = None, None
        self.output = {1: sys.stdout.buffer, 2: sys.stderr.buffer}
        self.cpu.hook_add(UC_HOOK_CODE, self._missing_called, begin=MISSING, end=MISSING + MISSING_SIZE)

    # Calls of the program.

    def _system_call(self, cpu, _):
        number = cpu.reg_read(arm64_const.UC_ARM64_REG_X16 if self.arm else x86_const.UC_X86_REG_RAX)
        first, second, third = (cpu.reg_read(register) for register in self.parameters[:3])
        answer = 0
        if number == EXIT:
            self.status = first & 0xFF
            cpu.emu_stop()
        elif number == WRITE and first in self.output:
            self.output[first].write(bytes(cpu.mem_read(second, third)))
            answer = third
        elif number != READ:
            answer = (1 << 64) - 1
        cpu.reg_write(self.result, answer)

    def _interrupt(self, cpu, number, _):
        if self.arm and number == 2:
            self._system_call(cpu, None)
            return
        self.fault = f"exception {number} at {self.where(cpu.reg_read(self.counter))}"
        cpu.emu_stop()

    def _invalid(self, cpu, access, address, size, _value, _):
        self.fault = f"no memory at {address:#x} (access {access}, {size} bytes), from {self.where(cpu.reg_read(self.counter))}"
        return False

    def _missing_called(self, _cpu, address, _size, _):
        self.called_missing.add(self.missing[(address - MISSING) // MISSING_STEP * MISSING_STEP + MISSING])

    def where(self, address):
        """An address as the name of its image and an offset."""
        for image, slide in self.images:
            if image.base <= address - slide < image.end:
                return f"{image.name}+{address - slide:#x}"
        return f"{address:#x}"

    # Loading.

    def write_word(self, address, value):
        """Eight bytes at a slid address."""
        self.cpu.mem_write(address, struct.pack("<Q", value % (1 << 64)))

    def reserve(self, size):
        """Zeroed memory outside of the program's own allocations."""
        start, self.ours = self.ours, (self.ours + size + 63) & -64
        return start

    def load(self, image, name):
        """Maps an image, binds it to those loaded before and to itself; gives its slide."""
        image.name = name
        slide = SLIDE + IMAGE_STEP * len(self.images) - image.base
        start = image.base + slide
        self.cpu.mem_map(start, (image.end - image.base + PAGE - 1) & -PAGE, UC_PROT_ALL)
        for segment in image.segments:
            if segment.file_size:
                content = image.data[segment.offset : segment.offset + segment.file_size]
                self.cpu.mem_write(segment.address + slide, bytes(content))
        self.images.append((image, slide))
        own = {symbol: address + slide for symbol, address in image.exports().items()}
        for symbol, address in own.items():
            self.symbols.setdefault(symbol, address)
        for fixup in fixups(image):
            if isinstance(fixup, Rebase):
                top = fixup.target & 0xFF << 56
                self.write_word(fixup.slot + slide, ((fixup.target ^ top) + slide) | top)
            elif fixup.symbol in self.symbols or not fixup.weak:
                self.write_word(fixup.slot + slide, self.resolve(fixup.symbol) + fixup.addend)
        self._thread_variables(image, slide)
        return slide

    def resolve(self, symbol):
        """The address of a symbol; of a function that returns zero when the symbol is undefined."""
        if symbol not in self.symbols:
            place = MISSING + MISSING_STEP * len(self.missing)
            self.cpu.mem_write(place, ZERO[self.architecture])
            self.missing[place] = symbol
            self.symbols[symbol] = place
        return self.symbols[symbol]

    def _thread_variables(self, image, slide):
        sections = image.sections()
        template = [section for section in sections if section.kind in (THREAD_DATA, THREAD_ZEROFILL)]
        if not template:
            return
        start = min(section.address for section in template)
        block = self.reserve(max(section.address + section.size for section in template) - start)
        for section in template:
            if section.kind == THREAD_DATA:
                content = self.cpu.mem_read(section.address + slide, section.size)
                self.cpu.mem_write(block + section.address - start, bytes(content))
        for section in sections:
            if section.kind == THREAD_VARIABLES:
                for descriptor in range(section.address, section.address + section.size, 24):
                    self.write_word(descriptor + slide + 8, block)

    # Running.

    def call(self, address, *arguments):
        """Calls a function at a slid address and gives its result; stops when the program exits."""
        for register, value in zip(self.parameters, arguments):
            self.cpu.reg_write(register, value % (1 << 64))
        stack = self.stack & -16
        if self.arm:
            self.cpu.reg_write(arm64_const.UC_ARM64_REG_X30, RETURN)
        else:
            stack -= 8
            self.write_word(stack, RETURN)
        self.cpu.reg_write(self.stack_pointer, stack)
        try:
            self.cpu.emu_start(address, RETURN)
        except unicorn.UcError as error:
            place = self.where(self.cpu.reg_read(self.counter))
            raise Fault(self.fault or f"{error} at {place}") from error
        if self.fault:
            raise Fault(self.fault)
        return self.cpu.reg_read(self.result)

    def _string(self, text):
        content = text.encode() + b"\0"
        place = self.reserve(len(content))
        self.cpu.mem_write(place, content)
        return place

    def _vector(self, texts):
        places = [self._string(text) for text in texts]
        vector = self.reserve(8 * len(places) + 8)
        for index, place in enumerate(places):
            self.write_word(vector + 8 * index, place)
        return vector

    def start(self, arguments, environment=()):
        """Informs the library about the process and calls the initialisers of every image, libraries first."""
        vectors = self._vector(arguments), self._vector(environment), self._vector(arguments[:1])
        self.parameters_of_main = (len(arguments), *vectors)
        variables = {
            "_host_argument_count": len(arguments),
            "_host_arguments": vectors[0],
            "_host_environment": vectors[1],
            "_host_image_count": len(self.images),
            "_host_stack_top": STACK + STACK_SIZE,
            "_host_stack_size": STACK_SIZE,
            "_host_arena_start": ARENA,
            "_host_arena_end": ARENA + ARENA_SIZE,
        }
        for symbol, value in variables.items():
            size = 4 if symbol.endswith("count") else 8
            self.cpu.mem_write(self.symbols[symbol], struct.pack("<Q", value)[:size])
        for index, (image, slide) in enumerate(self.images):
            self.write_word(self.symbols["_host_images"] + 8 * index, image.base + slide)
        for image, slide in self.images:
            for address in self._initialisers(image, slide):
                if self.status is None:
                    self.call(address, *self.parameters_of_main)

    def _initialisers(self, image, slide):
        for section in image.sections():
            content = bytes(self.cpu.mem_read(section.address + slide, section.size))
            if section.kind == INIT_POINTERS:
                yield from struct.unpack(f"<{section.size // 8}Q", content)
            elif section.kind == INIT_OFFSETS:
                for offset in struct.unpack(f"<{section.size // 4}I", content):
                    yield image.base + slide + offset

    def run(self, arguments):
        """Runs the last image as a program; gives the status with which it exits."""
        image, slide = self.images[-1]
        self.start(arguments)
        if self.status is None:
            result = self.call(image.entry() + slide, *self.parameters_of_main)
            if self.status is None:
                self.call(self.symbols["_exit"], result)
        return self.status
