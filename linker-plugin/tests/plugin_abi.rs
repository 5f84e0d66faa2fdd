//! The plugin interface, compared with binutils' own header (`plugin-api.h`, package `binutils-dev`).

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeMap;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use reorder_plugin::plugin::abi::{InputFile, Level, Section, Status, TransferEntry, TransferValue, tag};

fn numbers() -> Vec<(&'static str, usize)> {
    let tag = |number: i32| usize::try_from(number).unwrap();
    vec![
        ("LDPS_OK", tag(Status::OK.0)),
        ("LDPS_BAD_HANDLE", tag(Status::BAD_HANDLE.0)),
        ("LDPS_ERR", tag(Status::ERROR.0)),
        ("LDPL_INFO", Level::Info as usize),
        ("LDPL_WARNING", Level::Warning as usize),
        ("LDPL_ERROR", Level::Error as usize),
        ("LDPL_FATAL", Level::Fatal as usize),
        ("LDPT_NULL", tag(tag::NULL)),
        ("LDPT_GOLD_VERSION", tag(tag::GOLD_VERSION)),
        ("LDPT_OPTION", tag(tag::OPTION)),
        ("LDPT_REGISTER_CLAIM_FILE_HOOK", tag(tag::REGISTER_CLAIM_FILE_HOOK)),
        ("LDPT_REGISTER_ALL_SYMBOLS_READ_HOOK", tag(tag::REGISTER_ALL_SYMBOLS_READ_HOOK)),
        ("LDPT_REGISTER_CLEANUP_HOOK", tag(tag::REGISTER_CLEANUP_HOOK)),
        ("LDPT_MESSAGE", tag(tag::MESSAGE)),
        ("LDPT_OUTPUT_NAME", tag(tag::OUTPUT_NAME)),
        ("LDPT_GNU_LD_VERSION", tag(tag::GNU_LD_VERSION)),
        ("LDPT_GET_INPUT_SECTION_COUNT", tag(tag::GET_INPUT_SECTION_COUNT)),
        ("LDPT_GET_INPUT_SECTION_TYPE", tag(tag::GET_INPUT_SECTION_TYPE)),
        ("LDPT_GET_INPUT_SECTION_NAME", tag(tag::GET_INPUT_SECTION_NAME)),
        ("LDPT_UPDATE_SECTION_ORDER", tag(tag::UPDATE_SECTION_ORDER)),
        ("LDPT_ALLOW_SECTION_ORDERING", tag(tag::ALLOW_SECTION_ORDERING)),
        ("LDPT_ALLOW_UNIQUE_SEGMENT_FOR_SECTIONS", tag(tag::ALLOW_UNIQUE_SEGMENT_FOR_SECTIONS)),
        ("LDPT_UNIQUE_SEGMENT_FOR_SECTIONS", tag(tag::UNIQUE_SEGMENT_FOR_SECTIONS)),
        ("LDPT_GET_INPUT_SECTION_ALIGNMENT", tag(tag::GET_INPUT_SECTION_ALIGNMENT)),
        ("LDPT_GET_INPUT_SECTION_SIZE", tag(tag::GET_INPUT_SECTION_SIZE)),
        ("LDPT_REGISTER_NEW_INPUT_HOOK", tag(tag::REGISTER_NEW_INPUT_HOOK)),
        ("sizeof(enum ld_plugin_status)", size_of::<Status>()),
        ("sizeof(enum ld_plugin_level)", size_of::<Level>()),
        ("sizeof(struct ld_plugin_tv)", size_of::<TransferEntry>()),
        ("_Alignof(struct ld_plugin_tv)", align_of::<TransferEntry>()),
        ("offsetof(struct ld_plugin_tv, tv_tag)", offset_of!(TransferEntry, tag)),
        ("offsetof(struct ld_plugin_tv, tv_u)", offset_of!(TransferEntry, value)),
        ("sizeof(((struct ld_plugin_tv *)0)->tv_u)", size_of::<TransferValue>()),
        ("sizeof(struct ld_plugin_section)", size_of::<Section>()),
        ("_Alignof(struct ld_plugin_section)", align_of::<Section>()),
        ("offsetof(struct ld_plugin_section, handle)", offset_of!(Section, handle)),
        ("offsetof(struct ld_plugin_section, shndx)", offset_of!(Section, index)),
        ("sizeof(struct ld_plugin_input_file)", size_of::<InputFile>()),
        ("offsetof(struct ld_plugin_input_file, name)", offset_of!(InputFile, name)),
        ("offsetof(struct ld_plugin_input_file, fd)", offset_of!(InputFile, descriptor)),
        ("offsetof(struct ld_plugin_input_file, offset)", offset_of!(InputFile, offset)),
        ("offsetof(struct ld_plugin_input_file, filesize)", offset_of!(InputFile, size)),
        ("offsetof(struct ld_plugin_input_file, handle)", offset_of!(InputFile, handle)),
    ]
}

#[test]
fn numbers_sizes_and_offsets_are_those_of_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let numbers = numbers();
    let lines: String = numbers
        .iter()
        .map(|(name, _)| format!("printf(\"%zu %s\\n\", (size_t)({name}), \"{name}\");\n"))
        .collect();
    let source = format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <sys/types.h>\n\
         #include <plugin-api.h>\nint main(void) {{ {lines} return 0; }}"
    );
    let (source_path, program) = (directory.path().join("numbers.c"), directory.path().join("numbers"));
    std::fs::write(&source_path, source).unwrap();
    let compiled = Command::new("gcc").arg(&source_path).arg("-o").arg(&program).output().unwrap();
    let words = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "is binutils-dev installed? {words}");
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let header: BTreeMap<&str, usize> = printed
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(number, name)| (name, number.parse().unwrap()))
        .collect();
    assert_eq!(header.len(), numbers.len());
    for (name, number) in numbers {
        assert_eq!(header[name], number, "{name}");
    }
}
