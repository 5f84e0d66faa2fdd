//! Signatures of relocated Mach-O images compared with those of other signers: ld64.lld signs its output, llvm-objcopy its
//! copies. A developer's signature is replaced by an ad hoc one that keeps everything that needs no certificate.

use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::macho_fixtures::{CHAINED, Fixture, OPCODES, build, program};
use end_to_end::macho_tools::{run, script};
use end_to_end::process::Outcome;
use end_to_end::workspace;
use reorder_base::tool_versions::llvm;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::load_command::LinkEditPart;
use reorder_image::macho::signature::{CodeDirectory, Signature};

const PAGE: usize = 4096;
const CODE_DIRECTORY: u32 = 0xfade_0c02;
const RUNTIME: u32 = 0x1_0000;
const ADHOC: u32 = 2;
/// Of the file: the headers, the text and the strings are larger than this in each fixture.
const MIN_PAGES: usize = 5;

fn apply(image: &Path, order: &Path, output: &Path) -> Outcome {
    let outcome =
        run(workspace::reorder().arg("apply").arg(image).arg("--order").arg(order).arg("-o").arg(output));
    assert!(outcome.success(), "{outcome}");
    outcome
}

/// Relocates by a shuffle; gives the result and the linker's output for the same order.
fn relocated(fixture: &Fixture) -> (PathBuf, PathBuf) {
    const SEED: u64 = 11;
    let order = fixture.linked.shuffled_link(SEED);
    let output = fixture.linked.directory.join("relocated");
    apply(&fixture.image, &order, &output);
    (output, fixture.linked.second(SEED))
}

/// Fields of two directories agree, and pages of equal content have equal digests.
fn agree(ours: &[u8], theirs: &[u8]) {
    fn signature<'data>(file: &MachOFile<'data>) -> CodeDirectory<'data> {
        Signature::read(file).unwrap().unwrap().directory
    }
    let (our_file, their_file) = (MachOFile::parse(ours).unwrap(), MachOFile::parse(theirs).unwrap());
    let (our, their) = (signature(&our_file), signature(&their_file));
    let fields = |directory: &CodeDirectory<'_>| {
        let forms = (directory.hash_size, directory.hash_type, directory.page_shift);
        (directory.version, directory.flags, forms, directory.code_segment, directory.team.is_some())
    };
    assert_eq!(fields(&our), fields(&their));
    assert_eq!(our.special_hashes, their.special_hashes);
    assert_eq!(1 << our.page_shift, PAGE);
    for (directory, file) in [(&our, &our_file), (&their, &their_file)] {
        let place = file.link_edit_range(LinkEditPart::Signature).unwrap();
        assert_eq!(directory.code_limit, place.offset as u64);
        assert_eq!(directory.page_hashes.len(), place.offset.div_ceil(PAGE));
    }
    let pages = |bytes: &'_ [u8], limit: u64| -> Vec<Vec<u8>> {
        bytes[..limit as usize].chunks(PAGE).map(<[u8]>::to_vec).collect()
    };
    let contents = pages(ours, our.code_limit).into_iter().zip(pages(theirs, their.code_limit));
    let digests = our.page_hashes.iter().zip(&their.page_hashes);
    let mut equal = 0;
    for ((our_page, their_page), (our_digest, their_digest)) in contents.zip(digests) {
        assert_eq!(our_page == their_page, our_digest == their_digest);
        equal += usize::from(our_page == their_page);
    }
    assert!(equal >= MIN_PAGES, "only {equal} pages are the same");
}

#[test]
fn directories_are_those_of_llvm() {
    let fixtures = [
        program(CHAINED),
        program(OPCODES.compiled("-O0")),
        build(&[("exceptions.cpp", "")], OPCODES),
        build(&[("large.c", "")], CHAINED.linked("-dylib -install_name @rpath/first")),
    ];
    for fixture in fixtures {
        let (ours, linked) = relocated(&fixture);
        let bytes = std::fs::read(&ours).unwrap();
        agree(&bytes, &std::fs::read(linked).unwrap());

        // The identifiers of its copies are their file names, ours is the linker's output name.
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join(fixture.image.file_name().unwrap());
        let outcome = run(Command::new(llvm("llvm-objcopy")).args([&ours, &copy]));
        assert!(outcome.success(), "{outcome}");
        let copy = std::fs::read(copy).unwrap();
        agree(&bytes, &copy);
        let name = |bytes: &[u8]| {
            let file = MachOFile::parse(bytes).unwrap();
            Signature::read(&file).unwrap().unwrap().directory.identifier.to_vec()
        };
        assert_eq!(name(&bytes), name(&copy));
    }
}

fn blob(magic: u32, contents: &[u8]) -> Vec<u8> {
    let size = 8 + contents.len() as u32;
    [&magic.to_be_bytes(), &size.to_be_bytes(), contents].concat()
}

/// A directory as `codesign` writes it for a certificate: version 0x20500, hardened runtime, seven special slots. Its digests of
/// pages are only placeholders.
fn developers_directory(code_limit: u32, file_slots: &[(u32, [u8; 32])]) -> Vec<u8> {
    const SLOTS: u32 = 7;
    const HEADER: u32 = 96 - 8;
    let (identifier, team) = (b"com.example.tool\0", b"TEAM123456\0");
    let hashes_start = 96 + identifier.len() as u32 + team.len() as u32 + 32 * SLOTS;
    let pages = code_limit.div_ceil(PAGE as u32);
    let mut words = vec![0x20500, RUNTIME, hashes_start, 96, SLOTS, pages, code_limit, 0x2002_000c];
    words.extend([0, 0, 96 + identifier.len() as u32, 0]);
    // The wide limit, the segment of code, the runtime's version and what may be encrypted first.
    words.extend([0, 0, 0, 0, 0, 0x4000, 0, 1, 0x000d_0000, 0]);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    assert_eq!(bytes.len() as u32, HEADER);
    bytes.extend(identifier.iter().chain(team));
    for slot in (1..=SLOTS).rev() {
        let hash = file_slots.iter().find(|(number, _)| *number == slot);
        bytes.extend(hash.map_or([0; 32], |(_, hash)| *hash));
    }
    bytes.resize(bytes.len() + 32 * pages as usize, 0x5a);
    blob(CODE_DIRECTORY, &bytes)
}

/// The image at `path` with this signature in place of its own.
fn signed_anew(path: &Path, signature: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let file = MachOFile::parse(&bytes).unwrap();
    let place = file.link_edit_range(LinkEditPart::Signature).unwrap();
    let segment = file.segment(b"__LINKEDIT").unwrap();
    let (start, field, sizes) = (place.offset, place.size_field, segment.command_offset);
    let file_size = (start + signature.len() - segment.offset) as u64;
    bytes.truncate(start);
    bytes.extend_from_slice(signature);
    bytes[field..field + 4].copy_from_slice(&(signature.len() as u32).to_le_bytes());
    bytes[sizes + 32..sizes + 40].copy_from_slice(&file_size.next_multiple_of(0x4000).to_le_bytes());
    bytes[sizes + 48..sizes + 56].copy_from_slice(&file_size.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn developer_signatures_keep_what_needs_no_certificate() {
    let fixture = program(CHAINED);
    let code_limit = {
        let bytes = std::fs::read(&fixture.image).unwrap();
        MachOFile::parse(&bytes).unwrap().link_edit_range(LinkEditPart::Signature).unwrap().offset
    };
    let (list, resources) = ([0x11; 32], [0x33; 32]);
    let directory = developers_directory(code_limit as u32, &[(1, list), (3, resources)]);
    let entitlements = blob(0xfade_7171, b"<plist version=\"1.0\"><dict/></plist>");
    let der = blob(0xfade_7172, &[0x70, 0]);
    let requirements = blob(0xfade_0c01, &[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 20, 1, 2, 3, 4]);
    let parts: [(u32, Vec<u8>); 6] = [
        (0, directory.clone()),
        (2, requirements),
        (5, entitlements.clone()),
        (7, der.clone()),
        (0x1000, directory),
        (0x10000, blob(0xfade_0b01, &[0x30; 400])),
    ];
    let mut table = (parts.len() as u32).to_be_bytes().to_vec();
    let mut offset = 12 + 8 * parts.len();
    for (slot, part) in &parts {
        table.extend([slot.to_be_bytes(), (offset as u32).to_be_bytes()].concat());
        offset += part.len();
    }
    parts.iter().for_each(|(_, part)| table.extend(part));
    let mut signature = blob(0xfade_0cc0, &table);
    signature.resize(signature.len().next_multiple_of(16), 0);
    signed_anew(&fixture.image, &signature);

    let order = fixture.linked.shuffled_link(1);
    let output = fixture.linked.directory.join("relocated");
    let said = apply(&fixture.image, &order, &output).stderr_text();
    for lost in ["developer's signature of team TEAM123456 and notarization", "hardened runtime is off"] {
        assert!(said.contains(lost), "{said}");
    }
    let bytes = std::fs::read(&output).unwrap();
    let file = MachOFile::parse(&bytes).unwrap();
    let new = Signature::read(&file).unwrap().unwrap();
    let slots: Vec<u32> = new.blobs.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [0, 2, 5, 7]);
    assert_eq!((new.blob(5), new.blob(7)), (Some(&entitlements[..]), Some(&der[..])));
    assert_eq!(new.blob(2), Some(&blob(0xfade_0c01, &[0; 4])[..]), "requirements of the certificate");
    let directory = &new.directory;
    assert_eq!(
        (directory.flags, directory.team, directory.identifier),
        (ADHOC, None, &b"com.example.tool"[..])
    );
    assert_eq!((directory.special_hashes[0], directory.special_hashes[2]), (&list[..], &resources[..]));
    // Computed anew by another program: every page, and each slot that exists.
    let outcome = run(script("checker/signature.py").arg(&output));
    assert!(outcome.success(), "{outcome}");

    // Each image of a universal file has its own.
    let other = program(CHAINED.on("x86_64"));
    let both = fixture.linked.directory.join("both");
    let outcome = run(Command::new(llvm("llvm-lipo"))
        .arg("-create")
        .args([&fixture.image, &other.image])
        .arg("-output")
        .arg(&both));
    assert!(outcome.success(), "{outcome}");
    let said = apply(&both, &order, &fixture.linked.directory.join("new")).stderr_text();
    assert!(said.contains("arm64: the developer's signature of team TEAM123456"), "{said}");
    assert!(!said.contains("x86_64: the developer's"), "{said}");
}
