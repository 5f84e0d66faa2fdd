//! The identity of a recording, for samples.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use layout_algos::sample::Identity;
use sha2::{Digest as _, Sha256};

use super::{Location, NameHash, Trace};

/// The identity stored with the trace, or else one made of its file, its position there and its contents.
///
/// Not of its contents alone: two runs may well give equal traces, and both count. Not of the file alone:
/// profiles are overwritten by the next run.
pub fn identity_of(trace: &Trace) -> Identity {
    if let Some(identity) = trace.identity {
        return identity;
    }
    let mut digest = Sha256::new();
    let mut field = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    let source = trace.source.as_deref().map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    for path in [source.as_deref(), trace.image.path.as_deref()] {
        field(path.unwrap_or(Path::new("")).as_os_str().as_bytes());
    }
    field(trace.image.build_id.as_deref().unwrap_or_default());
    let numbers = [trace.position.into(), trace.run.into(), trace.process.unwrap_or(0).into(), trace.weight];
    numbers.iter().for_each(|number| field(&number.to_le_bytes()));
    trace.command.iter().for_each(|word| field(word));
    for event in &trace.events {
        let (tag, number, name): (u8, u64, &[u8]) = match &event.location {
            Location::Name(name) => (0, 0, name),
            Location::NameHash(NameHash::Md5(hash)) => (1, *hash, b""),
            Location::NameHash(NameHash::GccProfileId(id)) => (2, (*id).into(), b""),
            Location::Image(address) => (3, address.0, b""),
            Location::Inside(address) => (4, address.0, b""),
            Location::Runtime(address) => (5, address.0, b""),
        };
        field(&[tag]);
        field(&number.to_le_bytes());
        field(name);
        for number in [event.nanoseconds, event.count, event.tick] {
            field(&number.unwrap_or(u64::MAX).to_le_bytes());
        }
        if let Some(digest) = event.digest {
            field(&[digest.own.0.to_le_bytes(), digest.with_called.0.to_le_bytes()].concat());
        }
        if let Some(recorded) = &event.blocks {
            field(&recorded.digest.0.to_le_bytes());
            for block in &recorded.blocks {
                field(&[block.offset.to_le_bytes(), block.size.to_le_bytes()].concat());
                field(&block.nanoseconds.to_le_bytes());
            }
        }
    }
    let bytes: [u8; 32] = digest.finalize().into();
    // The first half of a digest is a digest.
    Identity(bytes.iter().take(16).fold(0, |identity, &byte| identity << 8 | u128::from(byte)))
}
