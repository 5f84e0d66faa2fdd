//! The linker, as its transfer vector offers it: safe calls over the callbacks.
//!
//! In: the vector that `onload` is given. Out: [`Offer`]. All optional callbacks may be missing, and existing ones
//! may have no effect: out-parameters start with values that no linker writes, so that this is noticed.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::abi::{
    Allow, Level, Message, RegisterClaimFile, RegisterHook, RegisterNewInput, Section, SectionCount,
    SectionName, SectionNumber, SectionSize, Status, TransferEntry, UniqueSegment, UpdateSectionOrder, tag,
};

/// A vector without an end is not followed further than this; each `-plugin-opt` takes one entry.
const MAX_ENTRIES: usize = 1 << 20;

/// The linker's callbacks.
#[derive(Clone, Copy, Default)]
pub(super) struct Host {
    message: Option<Message>,
    pub(super) register_claim_file: Option<RegisterClaimFile>,
    pub(super) register_new_input: Option<RegisterNewInput>,
    pub(super) register_all_symbols_read: Option<RegisterHook>,
    pub(super) register_cleanup: Option<RegisterHook>,
    section_count: Option<SectionCount>,
    section_type: Option<SectionNumber>,
    section_alignment: Option<SectionNumber>,
    section_name: Option<SectionName>,
    section_size: Option<SectionSize>,
    update_section_order: Option<UpdateSectionOrder>,
    allow_section_ordering: Option<Allow>,
    allow_unique_segment: Option<Allow>,
    unique_segment: Option<UniqueSegment>,
}

/// Everything in a transfer vector.
#[derive(Default)]
pub(super) struct Offer {
    /// The callbacks.
    pub(super) host: Host,
    /// The texts of `-plugin-opt`, in order.
    pub(super) options: Vec<Vec<u8>>,
    /// The name of the output, if the linker tells it.
    pub(super) output: Option<PathBuf>,
    /// The linker's identity, as it states it.
    pub(super) linker: Linker,
}

/// The linker's identity, as it states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Linker {
    /// gold, by this version.
    pub(super) gold: Option<c_int>,
    /// GNU ld, by this version: 240 is 2.40.
    pub(super) gnu: Option<c_int>,
}

impl Linker {
    /// Whether it names itself. mold does not; it offers all callbacks and orders no sections.
    pub(super) fn is_known(self) -> bool {
        self.gold.is_some() || self.gnu.is_some()
    }

    /// For messages.
    pub(super) fn name(self) -> String {
        match (self.gold, self.gnu) {
            (Some(_), _) => "ld.gold".to_owned(),
            (None, Some(version)) => format!("GNU ld {}.{}", version / 100, version % 100),
            (None, None) => "this linker".to_owned(),
        }
    }
}

/// The linker's answer to a query about its sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<T> {
    /// This.
    Known(T),
    /// It refused, or cannot be asked.
    Unknown,
    /// It claims to have answered and has not.
    Pretended,
}

impl Offer {
    /// Takes the vector apart. Unknown entries are skipped.
    ///
    /// # Safety
    /// `vector` is null or points to entries whose values are as their tags say, the last one with [`tag::NULL`].
    pub(super) unsafe fn read(vector: *const TransferEntry) -> Self {
        let mut offer = Self::default();
        if vector.is_null() {
            return offer;
        }
        for position in 0..MAX_ENTRIES {
            // SAFETY: no entry before this one was the end, so there is another.
            let entry = unsafe { *vector.add(position) };
            if entry.tag == tag::NULL {
                break;
            }
            // SAFETY: as this function demands.
            unsafe { offer.take(entry) };
        }
        offer
    }

    /// # Safety
    /// The value is as its tag says.
    unsafe fn take(&mut self, TransferEntry { tag, value }: TransferEntry) {
        let host = &mut self.host;
        // SAFETY: each tag comes with its field; texts end with a zero byte.
        unsafe {
            match tag {
                tag::GOLD_VERSION => self.linker.gold = Some(value.number),
                tag::GNU_LD_VERSION => self.linker.gnu = Some(value.number),
                tag::OPTION if !value.text.is_null() => self.options.push(text(value.text)),
                tag::OUTPUT_NAME if !value.text.is_null() => {
                    self.output = Some(PathBuf::from(OsStr::from_bytes(&text(value.text))));
                }
                tag::MESSAGE => host.message = value.message,
                tag::REGISTER_CLAIM_FILE_HOOK => host.register_claim_file = value.register_claim_file,
                tag::REGISTER_NEW_INPUT_HOOK => host.register_new_input = value.register_new_input,
                tag::REGISTER_ALL_SYMBOLS_READ_HOOK => host.register_all_symbols_read = value.register_hook,
                tag::REGISTER_CLEANUP_HOOK => host.register_cleanup = value.register_hook,
                tag::GET_INPUT_SECTION_COUNT => host.section_count = value.section_count,
                tag::GET_INPUT_SECTION_TYPE => host.section_type = value.section_number,
                tag::GET_INPUT_SECTION_ALIGNMENT => host.section_alignment = value.section_number,
                tag::GET_INPUT_SECTION_NAME => host.section_name = value.section_name,
                tag::GET_INPUT_SECTION_SIZE => host.section_size = value.section_size,
                tag::UPDATE_SECTION_ORDER => host.update_section_order = value.update_section_order,
                tag::ALLOW_SECTION_ORDERING => host.allow_section_ordering = value.allow,
                tag::ALLOW_UNIQUE_SEGMENT_FOR_SECTIONS => host.allow_unique_segment = value.allow,
                tag::UNIQUE_SEGMENT_FOR_SECTIONS => host.unique_segment = value.unique_segment,
                _ => {}
            }
        }
    }
}

/// # Safety
/// `pointer` is not null and its text ends with a zero byte.
unsafe fn text(pointer: *const c_char) -> Vec<u8> {
    // SAFETY: as this function demands.
    unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec()
}

impl Host {
    /// Says something through the linker, if it listens.
    pub(super) fn say(&self, level: Level, message: &str) {
        let Some(callback) = self.message else { return };
        let text = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        // SAFETY: the format is constant and takes one text, which is there and ends with a zero byte.
        unsafe { callback(level as c_int, c"%s".as_ptr(), text.as_ptr()) };
    }

    /// Whether all callbacks that ordering needs are offered.
    pub(super) fn orders_sections(&self) -> bool {
        self.update_section_order.is_some()
            && self.allow_section_ordering.is_some()
            && self.section_count.is_some()
            && self.register_claim_file.is_some()
            && self.register_all_symbols_read.is_some()
    }

    /// Whether sections can get a segment of their own.
    pub(super) fn separates_sections(&self) -> bool {
        self.unique_segment.is_some() && self.allow_unique_segment.is_some()
    }

    /// Announces an order; only valid in `onload` or the first hook.
    pub(super) fn allow_section_ordering(&self) -> Status {
        // SAFETY: the callback takes no arguments.
        self.allow_section_ordering.map_or(Status::ERROR, |allow| unsafe { allow() })
    }

    /// Announces a segment; only valid in `onload` or the first hook.
    pub(super) fn allow_unique_segment(&self) -> Status {
        // SAFETY: the callback takes no arguments.
        self.allow_unique_segment.map_or(Status::ERROR, |allow| unsafe { allow() })
    }

    /// How many sections a file has, the null section included.
    pub(super) fn section_count(&self, handle: *const c_void) -> Answer<u32> {
        let Some(callback) = self.section_count else { return Answer::Unknown };
        let mut count = c_uint::MAX;
        // SAFETY: `count` outlives the call; a handle that is not known to the linker is refused by it.
        answered(unsafe { callback(handle, &raw mut count) }, count, c_uint::MAX)
    }

    /// `sh_type`.
    pub(super) fn section_type(&self, section: Section) -> Answer<u32> {
        number(self.section_type, section)
    }

    /// `sh_addralign`.
    pub(super) fn section_alignment(&self, section: Section) -> Answer<u32> {
        number(self.section_alignment, section)
    }

    /// `sh_size`.
    pub(super) fn section_size(&self, section: Section) -> Answer<u64> {
        let Some(callback) = self.section_size else { return Answer::Unknown };
        let mut size = u64::MAX;
        // SAFETY: `size` outlives the call; the index is below the count that the linker gave.
        answered(unsafe { callback(section, &raw mut size) }, size, u64::MAX)
    }

    /// The section's name.
    pub(super) fn section_name(&self, section: Section) -> Answer<Vec<u8>> {
        let Some(callback) = self.section_name else { return Answer::Unknown };
        let mut name: *mut c_char = std::ptr::null_mut();
        // SAFETY: `name` outlives the call; the index is below the count that the linker gave.
        let status = unsafe { callback(section, &raw mut name) };
        match (status, name.is_null()) {
            (Status::OK, true) => Answer::Pretended,
            (Status::OK, false) => {
                // SAFETY: the linker answered with text that it allocated and that ends with a zero byte.
                let bytes = unsafe { text(name) };
                // SAFETY: it comes from `malloc`, belongs to the caller, and is not used again.
                unsafe { libc::free(name.cast()) };
                Answer::Known(bytes)
            }
            _ => Answer::Unknown,
        }
    }

    /// Gives the final order of all `sections`.
    pub(super) fn update_section_order(&self, sections: &[Section]) -> Status {
        let (Some(callback), Ok(count)) = (self.update_section_order, c_uint::try_from(sections.len()))
        else {
            return Status::ERROR;
        };
        // SAFETY: pointer and count are those of one slice, which outlives the call.
        unsafe { callback(sections.as_ptr(), count) }
    }

    /// Puts `sections` into an output section `name` in a segment of its own.
    pub(super) fn unique_segment(&self, name: &'static CStr, alignment: u64, sections: &[Section]) -> Status {
        let (Some(callback), Ok(count)) = (self.unique_segment, c_uint::try_from(sections.len())) else {
            return Status::ERROR;
        };
        // SAFETY: pointer and count are those of one slice; the name lives as long as the program.
        unsafe { callback(name.as_ptr(), 0, alignment, sections.as_ptr(), count) }
    }
}

fn number(callback: Option<SectionNumber>, section: Section) -> Answer<u32> {
    let Some(callback) = callback else { return Answer::Unknown };
    let mut number = c_uint::MAX;
    // SAFETY: `number` outlives the call; the index is below the count that the linker gave.
    answered(unsafe { callback(section, &raw mut number) }, number, c_uint::MAX)
}

fn answered<T: PartialEq>(status: Status, value: T, unwritten: T) -> Answer<T> {
    match status {
        Status::OK if value == unwritten => Answer::Pretended,
        Status::OK => Answer::Known(value),
        _ => Answer::Unknown,
    }
}
