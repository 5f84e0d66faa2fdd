//! Records in `__llvm_covdata`, names in `__llvm_covnames`: what a profile would have, with addresses of the image.

use std::collections::HashSet;
use std::ops::Range;

use object::Object as _;

use super::{CorrelatedFunction, CorrelatedFunctions, contents, counter_offset};
use crate::formats::llvm_images::InstrumentedImage;
use crate::formats::llvm_names::NameTable;
use crate::formats::llvm_raw::RecordVersion;
use reorder_base::address::Address;

pub(super) fn read(
    object: &object::File<'_>,
    version: RecordVersion,
    image: &InstrumentedImage,
    counters: &Range<u64>,
) -> Result<CorrelatedFunctions, String> {
    let records = contents(object, "__llvm_covdata").ok_or("has no section __llvm_covdata")?;
    let names = contents(object, "__llvm_covnames").ok_or("has no section __llvm_covnames")?;
    if object.is_64() != version.is_wide() || object.is_little_endian() != version.is_little_endian() {
        return Err("is for another processor".to_owned());
    }
    let layout = version.layout();
    if !records.len().is_multiple_of(layout.size) {
        return Err(format!("has a section __llvm_covdata of no whole records of {} bytes", layout.size));
    }
    let names = NameTable::read(&names);
    let remarks = names.damage(0).map(|note| format!("in __llvm_covnames of {}: {note}", image.name()));
    let mut known = HashSet::new();
    let functions =
        records.chunks_exact(layout.size).map(|record| layout.read(record)).filter_map(|record| {
            // The linker leaves the records of functions that it dropped, with the counters of another copy or none.
            let counters = counter_offset(record.counters, counters)?;
            let address = Some(Address(record.function)).filter(|address| image.has_code_at(*address));
            known.insert(counters).then(|| CorrelatedFunction {
                name_hash: record.name_hash,
                name: names.get(record.name_hash),
                counters,
                counter_count: record.counter_count,
                address,
            })
        });
    Ok(CorrelatedFunctions { functions: functions.collect(), remarks: remarks.into_iter().collect() })
}
