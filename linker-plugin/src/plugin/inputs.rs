//! All code sections of the link, in the order in which the linker reads them.
//!
//! In: each input file as the linker shows it. Out: [`Inputs`]. No file is kept open, and the file's position stays where
//! the linker has it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, FromRawFd as _};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::abi::{InputFile, Section, Status};
use super::host::{Answer, Host};
use super::object_file::{CodeSection, FunctionName, ObjectCode, Scope, is_code_name, read_object, tail_of};

/// One object's code.
#[derive(Clone, Debug)]
pub(super) struct InputObject {
    handle: Section,
    /// Its sections, by index.
    pub(super) sections: Vec<CodeSection>,
}

impl InputObject {
    /// An object that the linker calls `handle`.
    pub(super) fn new(handle: *const c_void, sections: Vec<CodeSection>) -> Self {
        Self { handle: Section { handle, index: 0 }, sections }
    }

    /// The linker's word for one of its sections.
    pub(super) fn section(&self, section: &CodeSection) -> Section {
        Section { index: section.index, ..self.handle }
    }
}

/// Whether the linker answers questions about sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The object's sections are known, if it has any.
    Yes,
    /// The linker claims to answer and does not.
    Pretended,
}

/// All objects so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Inputs {
    /// In the order of the link.
    pub(super) objects: Vec<InputObject>,
}

impl Inputs {
    /// Adds the object that the linker shows. What is no object, or a damaged one, is left to the linker to judge.
    ///
    /// # Safety
    /// The descriptor of `file` is open during the call.
    pub(super) unsafe fn take(&mut self, host: &Host, file: &InputFile) -> Taken {
        let count = match host.section_count(file.handle) {
            Answer::Known(count) => count,
            // Bitcode, and archives of it: another plugin's.
            Answer::Unknown => return Taken::Yes,
            Answer::Pretended => return Taken::Pretended,
        };
        // SAFETY: as this function demands.
        let read = unsafe { with_bytes(file, read_object) }.flatten();
        let sections = match read {
            Some(ObjectCode { section_count, sections }) if section_count == count as usize => sections,
            _ => asked_sections(host, file.handle, count, file.size.max(0).unsigned_abs()),
        };
        if !sections.is_empty() {
            self.objects.push(InputObject::new(file.handle, sections));
        }
        Taken::Yes
    }

    /// Leaves out the objects of which the linker takes no orders, such as those that another plugin has claimed since.
    /// Only objects with one of `sections` are tried, and by an order of that section alone, which the next one replaces.
    /// Returns whether an object was left out.
    pub(super) fn retain_orderable(&mut self, host: &Host, sections: &[Section]) -> bool {
        let mut sample: BTreeMap<*const c_void, Section> = BTreeMap::new();
        for section in sections {
            sample.entry(section.handle).or_insert(*section);
        }
        let before = self.objects.len();
        self.objects.retain(|object| {
            let section = sample.get(&object.handle.handle);
            section.is_none_or(|section| host.update_section_order(&[*section]) == Status::OK)
        });
        self.objects.len() < before
    }
}

/// Sections by the linker's own answers, with the functions that they are named after.
fn asked_sections(host: &Host, handle: *const c_void, count: u32, file_size: u64) -> Vec<CodeSection> {
    const PROGBITS: u32 = 1;
    // A section header takes forty bytes at least, so a file holds no more sections than this.
    let count = count.min(u32::try_from(file_size / 40).unwrap_or(u32::MAX));
    let ask = |index: u32| {
        let section = Section { handle, index };
        let Answer::Known(PROGBITS) = host.section_type(section) else { return None };
        let Answer::Known(name) = host.section_name(section) else { return None };
        let Answer::Known(size) = host.section_size(section) else { return None };
        let alignment = match host.section_alignment(section) {
            Answer::Known(alignment) => u64::from(alignment).next_power_of_two(),
            _ => 1,
        };
        if !is_code_name(&name) || size == 0 || size > file_size {
            return None;
        }
        let tail = tail_of(&name)?.to_vec();
        let functions = vec![FunctionName { name: tail, scope: Scope::Weak, size: 0 }];
        Some(CodeSection { index, name, size, alignment, group: None, functions })
    };
    (1..count).filter_map(ask).collect()
}

/// Maps the object during `work`; `None` if that is impossible.
///
/// # Safety
/// The descriptor of `file` is open during the call.
unsafe fn with_bytes<T>(file: &InputFile, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
    const INVALID: c_int = -1;
    if file.descriptor <= INVALID {
        return None;
    }
    // SAFETY: the descriptor is open as this function demands; it is not closed, because the value is never dropped.
    let opened = ManuallyDrop::new(unsafe { File::from_raw_fd(file.descriptor) });
    let (offset, size) = (u64::try_from(file.offset).ok()?, u64::try_from(file.size).ok()?);
    // Pages after the end of a file cannot be read.
    if offset.checked_add(size)? > opened.metadata().ok()?.len() {
        return None;
    }
    // Members of archives start anywhere, mappings at pages; 64 KiB is a multiple of every page size.
    let ahead = offset % (64 << 10);
    let length = NonZeroUsize::new(usize::try_from(size.checked_add(ahead)?).ok()?)?;
    let start = libc::off_t::try_from(offset - ahead).ok()?;
    // SAFETY: a new private read-only mapping at an address of the system's choice affects no other memory.
    let mapped =
        unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, opened.as_fd(), start) };
    let address = mapped.ok()?;
    // SAFETY: the mapping is `length` bytes that are all in the file and stay mapped until below; who truncates an
    // object during its link breaks the linker's own mapping alike.
    let bytes = unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), length.get()) };
    let worked = usize::try_from(ahead).ok().and_then(|ahead| bytes.get(ahead..)).map(work);
    // SAFETY: mapped above with this length; no reference to it is left, since results do not borrow from it.
    let _ = unsafe { munmap(address, length.get()) };
    worked
}
