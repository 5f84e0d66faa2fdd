//! Where an image passes functions to the C library, which calls them.
//!
//! No code of the image shows these calls: the library's own code makes them. But its interface says which arguments are functions,
//! so where the image imports a function of such a name, these arguments are certainly addresses of code. In programs at a fixed address, which say nothing of pointers, `main` itself
//! is such an argument.
//! Sources: Linux Standard Base, "Interface Definitions for libc"; System V ABI for AMD64, section 3.2.3, "Parameter Passing".

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use object::elf::Rela64;
use object::{LittleEndian, pod};

use crate::elf::file::ElfFile;
use crate::elf::functions::is_linker_stub_section;
use crate::elf::symbol::{Symbol, SymbolTable};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// Numbers of arguments that are functions, from 0.
pub type Callbacks = &'static [usize];

/// Relocations that store the address of a symbol.
const ADDRESSES: [u32; 3] =
    [object::elf::R_X86_64_64.0, object::elf::R_X86_64_GLOB_DAT.0, object::elf::R_X86_64_JUMP_SLOT.0];

/// Functions that call what they are passed.
const CALLERS: [(&[u8], Callbacks); 32] = [
    (b"__libc_start_main", &[0, 3, 4, 5]),
    (b"__cxa_at_quick_exit", &[0]),
    (b"__cxa_atexit", &[0]),
    (b"__cxa_thread_atexit_impl", &[0]),
    (b"__register_atfork", &[0, 1, 2]),
    (b"_Unwind_Backtrace", &[0]),
    (b"at_quick_exit", &[0]),
    (b"atexit", &[0]),
    (b"bsearch", &[4]),
    (b"call_once", &[1]),
    (b"dl_iterate_phdr", &[0]),
    (b"ftw", &[1]),
    (b"ftw64", &[1]),
    (b"glob", &[2]),
    (b"glob64", &[2]),
    (b"lfind", &[4]),
    (b"lsearch", &[4]),
    (b"makecontext", &[1]),
    (b"nftw", &[1]),
    (b"nftw64", &[1]),
    (b"on_exit", &[0]),
    (b"pthread_atfork", &[0, 1, 2]),
    (b"pthread_create", &[2]),
    (b"pthread_key_create", &[1]),
    (b"pthread_once", &[1]),
    (b"qsort", &[3]),
    (b"qsort_r", &[3]),
    (b"scandir", &[2, 3]),
    (b"signal", &[1]),
    (b"thrd_create", &[1]),
    (b"tsearch", &[2]),
    (b"twalk", &[1]),
];

/// What leads to such functions.
#[derive(Clone, Debug, Default)]
pub struct CallbackCallers {
    /// Words that the loader sets to their addresses.
    slots: BTreeMap<Address, Callbacks>,
    /// Stubs of the linker that jump there.
    stubs: BTreeMap<Address, Callbacks>,
}

impl CallbackCallers {
    /// Those that `file` imports; none in images for other processors than x86-64, and where its tables are damaged.
    #[must_use]
    pub fn of(file: &ElfFile<'_>, symbols: &SymbolTable<'_>) -> Self {
        let mut callers = Self::default();
        if file.processor != Processor::X86_64 {
            return callers;
        }
        let tables = file.sections.iter().filter(|section| {
            section.is_loaded() && section.has_bytes() && section.kind == object::elf::SHT_RELA.0
        });
        for table in tables {
            let entries = pod::slice_from_all_bytes::<Rela64<LittleEndian>>(file.section_bytes(table));
            for entry in entries.unwrap_or_default() {
                let symbol = symbols.get((entry.r_info.get(LittleEndian) >> 32) as usize);
                // Of its own functions of these names nothing is known.
                let is_imported = |symbol: &Symbol<'_>| symbol.section == object::elf::SHN_UNDEF.0;
                let name = symbol.filter(is_imported).map_or(&[][..], |symbol| symbol.name);
                let kind = entry.r_info.get(LittleEndian) as u32;
                let is_address = ADDRESSES.contains(&kind) && entry.r_addend.get(LittleEndian) == 0;
                if !is_address {
                    continue;
                }
                if let Some((_, callbacks)) = CALLERS.iter().find(|(caller, _)| *caller == name) {
                    callers.slots.insert(Address(entry.r_offset.get(LittleEndian)), callbacks);
                }
            }
        }
        for section in file.sections.iter().filter(|section| is_linker_stub_section(section.name)) {
            let bytes = if section.has_bytes() { file.section_bytes(section) } else { &[] };
            for (start, stub) in (section.address.0..).step_by(STUB_STEP).zip(bytes.chunks(STUB_STEP)) {
                // A stub may have as many bytes again.
                let first = (start - section.address.0) as usize;
                let stub = bytes.get(first..first + 2 * STUB_STEP).unwrap_or(stub);
                if let Some(callbacks) = callers.by_jump(stub, Address(start)) {
                    callers.stubs.insert(Address(start), callbacks);
                }
            }
        }
        callers
    }

    /// Where in `code`, which lies at `start`, instructions call or jump to such functions, in bytes from its start, ascending.
    #[must_use]
    pub fn calls(&self, code: &[u8], start: Address) -> Vec<(u32, Callbacks)> {
        if self.slots.is_empty() {
            return Vec::new();
        }
        let instructions = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE).into_iter();
        let called = instructions.filter_map(|instruction| {
            let offset = u32::try_from(instruction.ip().wrapping_sub(start.0)).ok()?;
            Some((offset, self.called(&instruction)?))
        });
        called.collect()
    }

    /// The function whose stub begins at `start`: a mark for indirect branches may come before its jump.
    fn by_jump(&self, stub: &[u8], start: Address) -> Option<Callbacks> {
        let instructions = Decoder::with_ip(64, stub, start.0, DecoderOptions::NONE).into_iter();
        let jump =
            instructions.take(2).find(|instruction| instruction.flow_control() != FlowControl::Next)?;
        self.called(&jump)
    }

    fn called(&self, instruction: &Instruction) -> Option<Callbacks> {
        let is_through_memory = instruction.op0_kind() == OpKind::Memory;
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::UnconditionalBranch => {
                self.stubs.get(&Address(instruction.near_branch_target())).copied()
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if is_through_memory && instruction.is_ip_rel_memory_operand() =>
            {
                self.slots.get(&Address(instruction.ip_rel_memory_address())).copied()
            }
            _ => None,
        }
    }
}

/// Stubs begin at multiples of this many bytes.
const STUB_STEP: usize = 8;

#[cfg(test)]
mod tests {
    use super::{Address, CallbackCallers};
    use std::collections::BTreeMap;

    #[test]
    fn calls_through_words_and_through_stubs_are_known() {
        let once: super::Callbacks = &[1];
        let slots = BTreeMap::from([(Address(0x2000), once)]);
        let mut callers = CallbackCallers { slots, stubs: BTreeMap::new() };
        // endbr64; jmp *0xff0(%rip)
        let stub = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0xf6, 0x0f, 0, 0];
        assert_eq!(callers.by_jump(&stub, Address(0x1000)), Some(once));
        assert_eq!(callers.by_jump(&stub, Address(0x1008)), None, "another word");
        callers.stubs.insert(Address(0x1000), once);
        // nop; call 0x1000; jmp 0x1000; call *(%rax); call *0x2000(%rip)
        let code = [
            0x90, 0xe8, 0xfa, 0xef, 0xff, 0xff, 0xe9, 0xf5, 0xef, 0xff, 0xff, 0xff, 0x10, 0xff, 0x15, 0xed,
            0xff, 0xff, 0xff,
        ];
        assert_eq!(callers.calls(&code, Address(0x2000)), [(1, once), (6, once), (13, once)]);
    }
}
