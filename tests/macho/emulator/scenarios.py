"""Calls into libraries: each scenario takes a machine whose last image is the library, and a stream for its results."""

import struct

# Capstone's numbers of architectures and modes, and bytes to decode.
DECODED = [
    ("arm", 0, 0, "edffffeb 04e02de5 00000000 e08322e5 f1020ee3 0000a0e3 0230c1e7 000053e3"),
    ("arm64", 1, 0, "090038d5 bf4003d5 0c0513d5 2050020e 20e43d0f 0018a05f a200ae9e 9f3703d5 3f230391 0a1040fd"),
    ("mips", 2, 1 << 31, "0c100097 00000000 2402000c 8fa20000 34213456 0c000000"),
    ("x86", 3, 4, "8d4c3208 01d8 81c634120000 0523010000 368b849123010000 418d8439896700 00b4c6"),
    ("x86-64", 3, 8, "55 488b05b8130000 e9eabeadde ff2523010000 e8dfbeadde 74ff f30f10c1 c5f877"),
    ("ppc", 4, 1 << 31, "80200000 803f0000 1043230e d0440048 4c432202 2d030080 7c43203f 4e800020"),
    ("sparc", 5, 1 << 31, "80a04002 85c26008 85e82001 81e80000 90102001 d5f61016 2100000a"),
    ("systemz", 6, 1 << 31, "ed000000001a 5a0f1fff c20980000000 07f7 eb2affff7f57 e301ffff7f57"),
    ("xcore", 7, 1 << 31, "fe0ffe17 1317c6fe ec17 97f8ec4f 1ffdec37 07f2455b f9fa0206 1b10"),
]

def capstone(machine, out):
    """Decodes a few bytes for each of several architectures by cs_open and cs_disasm."""

    def function(name):
        return machine.symbols[name]

    def string(address):
        return bytes(machine.cpu.mem_read(address, 192)).split(b"\0")[0].decode()

    print(f"{machine.call(function('_cs_version'), 0, 0):#x}", file=out)
    handle, list_place = machine.reserve(8), machine.reserve(8)
    for name, architecture, mode, code in DECODED:
        status = machine.call(function("_cs_open"), architecture, mode, handle)
        print(f"{name}: {status}", file=out)
        if status:
            continue
        content = bytes.fromhex(code)
        place = machine.reserve(len(content))
        machine.cpu.mem_write(place, content)
        value = struct.unpack("<Q", machine.cpu.mem_read(handle, 8))[0]
        count = machine.call(function("_cs_disasm"), value, place, len(content), 0x1000, 0, list_place)
        instructions = struct.unpack("<Q", machine.cpu.mem_read(list_place, 8))[0]
        for index in range(count):
            # id u32, address u64, size u16, bytes [24], mnemonic [32], operands [160], a pointer: 248 bytes.
            at = instructions + 248 * index
            number, address, size = struct.unpack("<I4xQH", machine.cpu.mem_read(at, 18))
            print(f"  {address:#x} {size} {number} {string(at + 42)} {string(at + 74)}", file=out)
        machine.call(function("_cs_free"), instructions, count)
        machine.call(function("_cs_close"), handle)


SCENARIOS = {"capstone": capstone}
