//! Any bytes as an image whose functions are permuted: refused, or proven by the verifier.
//! What the verifier rejects is refused as well (R16): two readers may read a damaged image differently.

use reorder_base::error::{Error, ErrorKind};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_relocate::debug::DebugPolicy;
use reorder_verify::{VerifyOptions, verify};

pub(super) fn check(input: &[u8]) {
    // The seed comes after the image, so that files of a corpus are images.
    let (bytes, seed) = input.split_last().map_or((input, 0), |(seed, bytes)| (bytes, *seed));
    if let Ok(output) = permute(bytes, u64::from(seed)) {
        let keeps_size = policy(u64::from(seed)) == DebugPolicy::KeepStale;
        assert!(!keeps_size || output.len() == bytes.len(), "relocating in place keeps the size");
        let report = verify(bytes, &output, VerifyOptions::default()).expect("the input was read before");
        assert!(report.is_proven(), "{:#?}", report.differences);
    }
}

/// Half of the seeds also update debug information.
fn policy(seed: u64) -> DebugPolicy {
    if seed.is_multiple_of(2) { DebugPolicy::KeepStale } else { DebugPolicy::Update }
}

fn permute(bytes: &[u8], seed: u64) -> Result<Vec<u8>, Error> {
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let analysis = Analysis::new(&file, &functions)?;
    let layout = lay_out(
        &file,
        &functions.table,
        &[],
        Room::InPlace(&analysis),
        &LayoutRequest::of(Strategy::Random, seed),
    )?;
    let options = RelocateOptions { debug: policy(seed), ..RelocateOptions::default() };
    let applied = apply(&file, &functions, analysis, Arrangement::Order(&layout.order), options);
    applied.map(|applied| applied.bytes).inspect_err(|error| {
        let is_explained = !error.to_string().is_empty() && !matches!(error.kind, ErrorKind::Io(_));
        assert!(is_explained, "{error:?}");
    })
}
