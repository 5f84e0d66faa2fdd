//! The merged profile (`.mip`): sums over several runs.
//!
//! After the header: the number of functions; for each its name's MD5, position and offset, size, signature, number
//! of blocks, of runs and of calls, the sum of its times, its blocks and its edges; then the names. The runs
//! are gone; the mean time of those that executed a function is what is left of their orders.

use std::collections::HashMap;

use super::header::{Header, Mode};
use crate::cursor::{ByteOrder, Cursor};
use crate::formats::llvm_names::name_hash;
use crate::{Event, Evidence, Input, Location, Name, NameHash, Note, Reading, Trace};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

struct Function {
    hash: u64,
    runs: u32,
    calls: u64,
    /// Sum over the runs that executed it.
    order: u64,
}

pub(super) fn read(input: &Input<'_>, header: &Header) -> Result<Reading> {
    let mut cursor = Cursor::new(input.bytes, ByteOrder::Little);
    cursor.skip(header.length as u64)?;
    let (mut functions, mut notes) = (Vec::new(), Vec::new());
    let count = cursor.u64()?;
    let mut names = HashMap::new();
    let rest = (0..count).try_for_each(|_| function(&mut cursor).map(|function| functions.push(function)));
    if let Err(error) = rest.and_then(|()| read_names(&mut cursor, &mut names)) {
        if functions.is_empty() {
            return Err(error);
        }
        let message =
            format!("{error}; {} of {count} functions and {} names are kept", functions.len(), names.len());
        notes.push(Note::at(error.offset.unwrap_or_default(), message));
    }
    functions.retain(|function| function.runs > 0);
    functions.sort_by(by_mean);
    let nameless = functions.iter().filter(|function| !names.contains_key(&function.hash)).count();
    if nameless > 0 {
        notes.push(Note::new(format!("{nameless} functions have no name in the file, only a hash")));
    }
    let event = |function: &Function| {
        let hash = Location::NameHash(NameHash::Md5(function.hash));
        let location = names.get(&function.hash).cloned().map_or(hash, Location::Name);
        Event { count: Some(function.calls), ..Event::at(location) }
    };
    let evidence = match header.mode {
        Mode::CallGraph => {
            notes.push(
                Note::new(
                    "several runs were added up in this file: functions stand by the mean of their times",
                )
                .with_hint(Hint::companion(
                    "give the .mipraw files of the runs, and their map",
                    "PROGRAM.mipmap",
                )),
            );
            Evidence::Blended
        }
        Mode::Coverage => Evidence::Counts,
    };
    let events = functions.iter().map(event).collect();
    Ok(Reading { traces: vec![Trace { weight: 1, evidence, events, ..Trace::default() }], notes })
}

/// By mean time, compared as fractions.
fn by_mean(a: &Function, b: &Function) -> std::cmp::Ordering {
    let cross = |a: &Function, b: &Function| u128::from(a.order) * u128::from(b.runs);
    cross(a, b).cmp(&cross(b, a)).then(a.hash.cmp(&b.hash))
}

fn function(cursor: &mut Cursor<'_>) -> Result<Function> {
    let hash = cursor.u64()?;
    let (_position, _offset) = (cursor.u64()?, cursor.u64()?);
    let (_size, _signature) = (cursor.u32()?, cursor.u32()?);
    let (blocks, runs) = (cursor.u32()?, cursor.u32()?);
    let (calls, order) = (cursor.u64()?, cursor.u64()?);
    cursor.take_array(blocks.into(), 5)?;
    let at = cursor.offset();
    match cursor.u32()? {
        0 => Ok(Function { hash, runs, calls, order }),
        edges => Err(Error::malformed(at, format!("{edges} call edges, whose layout is not known"))),
    }
}

fn read_names(cursor: &mut Cursor<'_>, names: &mut HashMap<u64, Name>) -> Result<()> {
    for _ in 0..cursor.u64()? {
        let at = cursor.offset();
        let end = cursor.rest().iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| Error::malformed(at, "the file ends within its names"))?;
        let name = cursor.take(end as u64)?;
        cursor.skip(1)?;
        // Without a name the hash says more.
        if !name.is_empty() {
            names.insert(name_hash(name), Name::from(name));
        }
    }
    Ok(())
}
