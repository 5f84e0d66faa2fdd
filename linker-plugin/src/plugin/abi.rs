//! The plugin interface of GNU linkers, as `plugin-api.h` of binutils has it: numbers, structures and functions.
//!
//! Declarations only; a test compares numbers, sizes and offsets with the C header.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::off_t;

/// The status that a callback or a hook returns. A number and not an enumeration: a linker may return any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub c_int);

impl Status {
    /// All is well.
    pub const OK: Self = Self(0);
    /// The handle is of no object, or of one that another plugin has claimed.
    pub const BAD_HANDLE: Self = Self(2);
    /// Anything else.
    pub const ERROR: Self = Self(3);
}

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// For information.
    Info = 0,
    /// The link goes on.
    Warning = 1,
    /// The link goes on, and fails at its end, unless that is reached already.
    Error = 2,
    /// The linker ends at once, and removes its output.
    Fatal = 3,
}

/// Names of transfer vector entries.
pub mod tag {
    use std::ffi::c_int;

    /// The end of the vector.
    pub const NULL: c_int = 0;
    /// A number: the version of gold.
    pub const GOLD_VERSION: c_int = 2;
    /// The text after one `-plugin-opt`.
    pub const OPTION: c_int = 4;
    /// [`RegisterClaimFile`](super::RegisterClaimFile).
    pub const REGISTER_CLAIM_FILE_HOOK: c_int = 5;
    /// [`RegisterHook`](super::RegisterHook).
    pub const REGISTER_ALL_SYMBOLS_READ_HOOK: c_int = 6;
    /// [`RegisterHook`](super::RegisterHook).
    pub const REGISTER_CLEANUP_HOOK: c_int = 7;
    /// [`Message`](super::Message).
    pub const MESSAGE: c_int = 11;
    /// Text: the name of the output.
    pub const OUTPUT_NAME: c_int = 15;
    /// A number: 240 is GNU ld 2.40.
    pub const GNU_LD_VERSION: c_int = 17;
    /// [`SectionCount`](super::SectionCount).
    pub const GET_INPUT_SECTION_COUNT: c_int = 19;
    /// [`SectionNumber`](super::SectionNumber).
    pub const GET_INPUT_SECTION_TYPE: c_int = 20;
    /// [`SectionName`](super::SectionName).
    pub const GET_INPUT_SECTION_NAME: c_int = 21;
    /// [`UpdateSectionOrder`](super::UpdateSectionOrder).
    pub const UPDATE_SECTION_ORDER: c_int = 23;
    /// [`Allow`](super::Allow).
    pub const ALLOW_SECTION_ORDERING: c_int = 24;
    /// [`Allow`](super::Allow).
    pub const ALLOW_UNIQUE_SEGMENT_FOR_SECTIONS: c_int = 26;
    /// [`UniqueSegment`](super::UniqueSegment).
    pub const UNIQUE_SEGMENT_FOR_SECTIONS: c_int = 27;
    /// [`SectionNumber`](super::SectionNumber).
    pub const GET_INPUT_SECTION_ALIGNMENT: c_int = 29;
    /// [`SectionSize`](super::SectionSize).
    pub const GET_INPUT_SECTION_SIZE: c_int = 30;
    /// [`RegisterClaimFile`](super::RegisterClaimFile) for a hook without its second argument.
    pub const REGISTER_NEW_INPUT_HOOK: c_int = 31;
}

/// An input file, valid during the hook that is given it.
#[derive(Debug)]
#[repr(C)]
pub struct InputFile {
    /// Path of the object, or of the archive that it is a member of.
    pub name: *const c_char,
    /// Open for reading; its position is the linker's.
    pub descriptor: c_int,
    /// Where the object starts in the file.
    pub offset: off_t,
    /// Its size in bytes.
    pub size: off_t,
    /// What the linker calls it.
    pub handle: *mut c_void,
}

/// A section of an input file; passed by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Section {
    /// What the linker calls the file.
    pub handle: *const c_void,
    /// The section's number in the file's own table.
    pub index: c_uint,
}

// SAFETY: the handle is a token of the linker's that is never dereferenced here, only given back.
unsafe impl Send for Section {}
// SAFETY: as above.
unsafe impl Sync for Section {}

/// A hook that is shown an input file and says whether it claims it.
pub type ClaimFileHook = unsafe extern "C" fn(file: *const InputFile, claimed: *mut c_int) -> Status;
/// A hook that is shown an input file that was made during the link.
pub type NewInputHook = unsafe extern "C" fn(file: *const InputFile) -> Status;
/// A hook that is called at a phase of the link.
pub type PhaseHook = unsafe extern "C" fn() -> Status;
/// Registers a [`ClaimFileHook`].
pub type RegisterClaimFile = unsafe extern "C" fn(hook: ClaimFileHook) -> Status;
/// Registers a [`NewInputHook`].
pub type RegisterNewInput = unsafe extern "C" fn(hook: NewInputHook) -> Status;
/// Registers a [`PhaseHook`].
pub type RegisterHook = unsafe extern "C" fn(hook: PhaseHook) -> Status;
/// Prints as `printf` does.
pub type Message = unsafe extern "C" fn(level: c_int, format: *const c_char, ...) -> Status;
/// The number of sections of a file, the null section included.
pub type SectionCount = unsafe extern "C" fn(handle: *const c_void, count: *mut c_uint) -> Status;
/// A section's type, or its alignment in bytes.
pub type SectionNumber = unsafe extern "C" fn(section: Section, number: *mut c_uint) -> Status;
/// A section's name, which the caller frees with C's `free`.
pub type SectionName = unsafe extern "C" fn(section: Section, name: *mut *mut c_char) -> Status;
/// A section's size in bytes.
pub type SectionSize = unsafe extern "C" fn(section: Section, size: *mut u64) -> Status;
/// Sets the order of sections.
pub type UpdateSectionOrder = unsafe extern "C" fn(sections: *const Section, count: c_uint) -> Status;
/// Announces a later request.
pub type Allow = unsafe extern "C" fn() -> Status;
/// Puts sections into a segment of their own.
pub type UniqueSegment = unsafe extern "C" fn(
    name: *const c_char,
    flags: u64,
    alignment: u64,
    sections: *const Section,
    count: c_uint,
) -> Status;

/// One entry of the transfer vector.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TransferEntry {
    /// Says which field of the value is meant.
    pub tag: c_int,
    /// A number, a text or a function.
    pub value: TransferValue,
}

/// What the linker gives.
#[derive(Clone, Copy)]
#[repr(C)]
pub union TransferValue {
    /// A number.
    pub number: c_int,
    /// Text that ends with a zero byte.
    pub text: *const c_char,
    /// [`tag::MESSAGE`].
    pub message: Option<Message>,
    /// [`tag::REGISTER_CLAIM_FILE_HOOK`].
    pub register_claim_file: Option<RegisterClaimFile>,
    /// [`tag::REGISTER_NEW_INPUT_HOOK`].
    pub register_new_input: Option<RegisterNewInput>,
    /// [`tag::REGISTER_ALL_SYMBOLS_READ_HOOK`] and [`tag::REGISTER_CLEANUP_HOOK`].
    pub register_hook: Option<RegisterHook>,
    /// [`tag::GET_INPUT_SECTION_COUNT`].
    pub section_count: Option<SectionCount>,
    /// [`tag::GET_INPUT_SECTION_TYPE`] and [`tag::GET_INPUT_SECTION_ALIGNMENT`].
    pub section_number: Option<SectionNumber>,
    /// [`tag::GET_INPUT_SECTION_NAME`].
    pub section_name: Option<SectionName>,
    /// [`tag::GET_INPUT_SECTION_SIZE`].
    pub section_size: Option<SectionSize>,
    /// [`tag::UPDATE_SECTION_ORDER`].
    pub update_section_order: Option<UpdateSectionOrder>,
    /// [`tag::ALLOW_SECTION_ORDERING`] and [`tag::ALLOW_UNIQUE_SEGMENT_FOR_SECTIONS`].
    pub allow: Option<Allow>,
    /// [`tag::UNIQUE_SEGMENT_FOR_SECTIONS`].
    pub unique_segment: Option<UniqueSegment>,
}
