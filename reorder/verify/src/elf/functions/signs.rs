//! Signs of tables in the instructions of an x86-64 function, found without value analysis.

use goblin::elf::header::ET_EXEC;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::aarch64::Images;
use crate::elf::dispatch::replaces_return_address;
use crate::elf::pair::ImagePair;
use crate::elf::view::ElfView;
use reorder_base::address::Address;

/// Signs that a function may jump or call through a table of distances. Only such functions get the expensive value
/// analysis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// It jumps to an address in a register or on the stack.
    pub(super) jumps: bool,
    /// It calls such an address.
    pub(super) calls: bool,
    /// It loads four bytes with an index, or extends four bytes to eight.
    loads_words: bool,
    /// It loads eight bytes with an index.
    loads_long_words: bool,
    /// It jumps through memory with an index.
    jumps_through_memory: bool,
    /// It computes an address of code.
    pub(super) forms_code: bool,
    /// The last instruction replaced the return address by a register.
    replaced: bool,
}

/// Numbers of an instruction that may be addresses.
pub(super) fn constants(instruction: &Instruction) -> impl Iterator<Item = u64> {
    let displacement = (instruction.memory_displ_size() >= 4).then(|| instruction.memory_displacement64());
    let immediates =
        (0..instruction.op_count()).filter_map(|operand| instruction.try_immediate(operand).ok());
    displacement.into_iter().chain(immediates)
}

/// The constants in an instruction that are addresses in the image, if the image is at a fixed address.
pub(in crate::elf) fn stated_addresses(
    image: &ElfView<'_>,
    instruction: &Instruction,
) -> impl Iterator<Item = Address> {
    let is_fixed = image.header.e_type == ET_EXEC;
    let numbers = constants(instruction).filter(move |_| is_fixed);
    numbers.filter(|number| image.section_at(*number).is_some()).map(Address)
}

/// Whether code can still use what the instruction read from memory. The linker's stubs jump to it and keep nothing.
pub(in crate::elf) fn keeps_operand(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall)
}

impl Signs {
    pub(super) fn dispatches(self) -> bool {
        let is_sum = self.forms_code && (self.loads_words || self.loads_long_words);
        self.jumps && (self.loads_words || is_sum) || self.calls && is_sum
    }

    /// Whether it may jump to addresses that a table holds.
    pub(super) fn loads_targets(self) -> bool {
        self.jumps_through_memory || self.jumps && self.loads_long_words
    }

    pub(super) fn see(&mut self, instruction: &Instruction) {
        let is_indirect = match instruction.op0_kind() {
            OpKind::Register => true,
            OpKind::Memory => matches!(instruction.memory_base(), Register::RSP | Register::RBP),
            _ => false,
        };
        match instruction.flow_control() {
            FlowControl::IndirectBranch => {
                self.jumps |= is_indirect;
                self.jumps_through_memory |= instruction.memory_index() != Register::None;
            }
            FlowControl::IndirectCall => self.calls |= is_indirect,
            FlowControl::Return => self.jumps |= self.replaced,
            _ => {}
        }
        let pushes = instruction.mnemonic() == Mnemonic::Push && instruction.op0_kind() == OpKind::Register;
        self.replaced = pushes || replaces_return_address(instruction);
        if instruction.memory_index() != Register::None || instruction.mnemonic() == Mnemonic::Movsxd {
            match instruction.memory_size().size() {
                4 => self.loads_words = true,
                8 => self.loads_long_words = true,
                _ => {}
            }
        }
    }

    /// Programs at a fixed address state addresses of code as constants.
    pub(super) fn see_constant(&mut self, instruction: &Instruction, images: &ImagePair<'_>) {
        if images.old.header.e_type != ET_EXEC || self.forms_code {
            return;
        }
        self.forms_code = constants(instruction).any(|value| images.is_text(value));
    }
}
