//! Copies owner, mode and extended attributes from one open file to another.
//!
//! The order matters: changing the owner clears set-id bits and `security.capability`, so the owner comes first,
//! then the mode, then the attributes (an access-control list among them refines the mode).

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata, Permissions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

use super::Warning;

/// Attributes that sign or measure the file's contents: for the new contents they would be wrong.
const SIGNATURES: [&CStr; 2] = [c"security.ima", c"security.evm"];

/// Rights that the program gets whoever runs it.
const CAPABILITIES: &CStr = c"security.capability";

/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// Gives `to` the owner, mode and attributes of `from`; what cannot be kept becomes a warning, and so does a second program
/// with the rights of another user: `is_copy` says that `from` stays beside it.
///
/// # Errors
/// When the mode cannot be set: a program that cannot be executed is no replacement.
pub(super) fn copy(
    from: &File,
    metadata: &Metadata,
    to: &File,
    is_copy: bool,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut mode = metadata.mode() & 0o7777;
    let is_set_id = mode & SET_ID_BITS != 0;
    if let Err(error) = fchown(to, Some(metadata.uid()), Some(metadata.gid())) {
        // With another owner, set-id bits would grant the rights of the wrong user.
        mode &= !SET_ID_BITS;
        // A copy is its maker's, as with cp; that is worth a word only where rights are lost.
        if is_set_id || !is_copy {
            warnings.push(Warning::OwnerNotKept { reason: error.to_string(), drops_set_id: is_set_id });
        }
    } else if is_set_id && is_copy {
        warnings.push(Warning::RightsKept { what: format!("set-id bits (mode {mode:04o})") });
    }
    to.set_permissions(Permissions::from_mode(mode))?;
    for name in names(from).unwrap_or_default() {
        let readable = name.to_string_lossy().into_owned();
        if SIGNATURES.contains(&name.as_c_str()) {
            warnings.push(Warning::SignatureDropped { name: readable });
        } else if let Err(error) = value(from, &name).and_then(|value| set(to, &name, &value)) {
            warnings.push(Warning::AttributeNotKept { name: readable, reason: error.to_string() });
        } else if is_copy && name.as_c_str() == CAPABILITIES {
            warnings.push(Warning::RightsKept { what: "file capabilities".to_owned() });
        }
    }
    Ok(())
}

fn names(file: &File) -> Result<Vec<CString>> {
    let list = read_bounded(|buffer| {
        // SAFETY: the pointer and the length describe one writable slice, and the descriptor is open.
        unsafe { libc::flistxattr(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })?;
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

fn value(file: &File, name: &CStr) -> Result<Vec<u8>> {
    read_bounded(|buffer| {
        // SAFETY: the pointer and the length describe one writable slice, the name ends in a null byte, and the
        // descriptor is open.
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })
}

fn set(file: &File, name: &CStr, value: &[u8]) -> Result<()> {
    // SAFETY: the pointer and the length describe one readable slice, the name ends in a null byte, and the
    // descriptor is open.
    let outcome =
        unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Linux limits both a name list and a value to 64 KiB.
const MAX_ATTRIBUTE_BYTES: usize = 1 << 16;

fn read_bounded(read: impl FnOnce(&mut [u8]) -> isize) -> Result<Vec<u8>> {
    let mut buffer = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = usize::try_from(read(&mut buffer)).map_err(|_| Error::last_os_error())?;
    buffer.truncate(length);
    Ok(buffer)
}
