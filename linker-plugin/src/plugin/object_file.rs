//! Code sections of one relocatable object, with the names of their functions.
//!
//! In: the object's bytes. Out: [`CodeSection`]s by index. Any class and byte order of ELF; everything must lie inside
//! the bytes, and all names together are bounded by the file.

use std::sync::Arc;

use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use object::read::elf::{ElfFile, FileHeader, SectionHeader as _};
use object::{
    FileKind, Object as _, ObjectComdat as _, ObjectSection as _, ObjectSymbol as _, SectionIndex, SymbolKind,
};

/// Longer names are ignored.
const MAX_NAME_LENGTH: usize = 1 << 16;

/// An object's sections, as far as they are code that may be ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCode {
    /// All sections of the object, the null section included.
    pub section_count: usize,
    /// By index.
    pub sections: Vec<CodeSection>,
}

/// One section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSection {
    /// Its index in the object.
    pub index: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Its size in bytes; never zero, at most the file's.
    pub size: u64,
    /// A power of two.
    pub alignment: u64,
    /// The signature of the group of which a linker keeps one.
    pub group: Option<Vec<u8>>,
    /// Its functions in the order of the symbol table.
    pub functions: Vec<FunctionName>,
}

/// The name of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// The symbol.
    pub name: Vec<u8>,
    /// Its visibility.
    pub scope: Scope,
    /// Its size in bytes, zero if unknown.
    pub size: u64,
}

/// The visibility of a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This object alone; the source file, where the object tells it.
    Local(Arc<[u8]>),
    /// All objects, and others may define it as well.
    Weak,
    /// All objects.
    Global,
}

/// Whether a section of this name becomes part of the ordinary code. `.init` and `.fini` are one function in pieces, and
/// other names may have a special meaning.
pub(crate) fn is_code_name(name: &[u8]) -> bool {
    name == b".text" || name.starts_with(b".text.") || name.starts_with(b".gnu.linkonce.t.")
}

/// The function that a section is named after: `.text.startup.main` is `main`.
pub fn tail_of(section: &[u8]) -> Option<&[u8]> {
    const KINDS: [&[u8]; 5] = [b"hot.", b"unlikely.", b"startup.", b"exit.", b"split."];
    let tail = match section.strip_prefix(b".gnu.linkonce.t.") {
        Some(tail) => tail,
        None => section.strip_prefix(b".text.")?,
    };
    let tail = KINDS.iter().find_map(|kind| tail.strip_prefix(*kind)).unwrap_or(tail);
    let is_kind = KINDS.iter().any(|kind| kind.strip_suffix(b".") == Some(tail));
    (!tail.is_empty() && !is_kind).then_some(tail)
}

/// Reads an object; `None` for other files.
pub fn read_object(bytes: &[u8]) -> Option<ObjectCode> {
    match FileKind::parse(bytes).ok()? {
        FileKind::Elf64 => read::<object::elf::FileHeader64<object::Endianness>>(bytes),
        FileKind::Elf32 => read::<object::elf::FileHeader32<object::Endianness>>(bytes),
        _ => None,
    }
}

fn read<Header: FileHeader>(bytes: &[u8]) -> Option<ObjectCode> {
    let file: ElfFile<'_, Header> = ElfFile::parse(bytes).ok()?;
    // Names are spans of string tables that may overlap: without a bound they could cost entries × file size.
    let mut name_bytes = bytes.len().saturating_mul(4);
    let mut sections = Vec::new();
    let mut section_count = 0;
    for section in file.sections() {
        section_count = section_count.max(section.index().0 + 1);
        let header = section.elf_section_header();
        let flags = header.sh_flags(file.endian());
        let is_code = header.sh_type(file.endian()) == SHT_PROGBITS
            && flags.contains(SHF_ALLOC)
            && flags.contains(SHF_EXECINSTR);
        let (Ok(name), Ok(index)) = (section.name_bytes(), u32::try_from(section.index().0)) else {
            continue;
        };
        let size = section.size();
        let in_file = section.file_range().is_some_and(|(start, size)| {
            start.checked_add(size).is_some_and(|end| end <= bytes.len() as u64)
        });
        if !is_code || size == 0 || !in_file || !is_code_name(name) || name.len() > MAX_NAME_LENGTH {
            continue;
        }
        name_bytes = name_bytes.checked_sub(name.len())?;
        sections.push(CodeSection {
            index,
            name: name.to_vec(),
            size,
            alignment: section.align().checked_next_power_of_two().unwrap_or(1),
            group: None,
            functions: Vec::new(),
        });
    }
    let position = |index: SectionIndex, sections: &[CodeSection]| {
        let index = u32::try_from(index.0).ok()?;
        sections.binary_search_by_key(&index, |section| section.index).ok()
    };
    for comdat in file.comdats() {
        let Ok(name) = comdat.name_bytes() else { continue };
        for member in comdat.sections() {
            let Some(position) = position(member, &sections) else { continue };
            name_bytes = name_bytes.checked_sub(name.len())?;
            sections[position].group = Some(name.to_vec());
        }
    }
    let mut source: Arc<[u8]> = Arc::default();
    for symbol in file.symbols() {
        let Ok(name) = symbol.name_bytes() else { continue };
        if symbol.kind() == SymbolKind::File {
            name_bytes = name_bytes.checked_sub(name.len())?;
            source = name.into();
            continue;
        }
        let is_global = symbol.is_global();
        let is_function =
            symbol.kind() == SymbolKind::Text || (is_global && symbol.kind() == SymbolKind::Unknown);
        let Some(position) = symbol.section_index().and_then(|index| position(index, &sections)) else {
            continue;
        };
        if !is_function || name.is_empty() || name.len() > MAX_NAME_LENGTH {
            continue;
        }
        let scope = match (is_global, symbol.is_weak()) {
            (false, _) => Scope::Local(Arc::clone(&source)),
            (true, true) => Scope::Weak,
            (true, false) => Scope::Global,
        };
        name_bytes = name_bytes.checked_sub(name.len())?;
        sections[position].functions.push(FunctionName { name: name.to_vec(), scope, size: symbol.size() });
    }
    Some(ObjectCode { section_count: section_count.max(1), sections })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;
    use reorder_base::tool_versions::llvm;

    use super::*;

    fn compiled(flags: &[&str]) -> Vec<u8> {
        let directory = tempfile::tempdir().expect("a directory");
        let source = "template <int N> int part(int x) { return x * N; }\n\
            static __attribute__((noinline, used)) int helper(int x) { return x + 1; }\n\
            __attribute__((weak)) int replaceable(int x) { return x; }\n\
            __attribute__((cold)) int never(int x) { return helper(x); }\n\
            int main(int c, char **) { return part<3>(c) + helper(c); }\n";
        std::fs::write(directory.path().join("demo.cpp"), source).expect("writable");
        let made = Command::new(llvm("clang++"))
            .current_dir(directory.path())
            .args(["-O0", "-ffunction-sections", "-nostdinc", "-c", "demo.cpp", "-o", "demo.o"])
            .args(flags)
            .output()
            .expect("clang++ starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::read(directory.path().join("demo.o")).expect("an object")
    }

    fn described(code: &ObjectCode) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let functions = code.sections.iter().flat_map(|section| {
            section.functions.iter().map(move |function| {
                let scope = match &function.scope {
                    Scope::Local(file) => format!("in {}", text(file)),
                    Scope::Weak => "weak".to_owned(),
                    Scope::Global => "global".to_owned(),
                };
                let group =
                    section.group.as_ref().map_or_else(String::new, |group| format!(" of {}", text(group)));
                format!("{} {scope}{group}", text(&function.name))
            })
        });
        let mut functions: Vec<String> = functions.collect();
        functions.sort_unstable();
        functions
    }

    #[test]
    fn objects_of_every_class_and_byte_order_are_read() {
        for target in [
            "x86_64-linux-gnu",
            "i386-linux-gnu",
            "aarch64-linux-gnu",
            "powerpc-linux-gnu",
            "s390x-linux-gnu",
        ] {
            let bytes = compiled(&["-target", target]);
            let code = read_object(&bytes).expect(target);
            let expected = [
                "_Z11replaceablei weak",
                "_Z4partILi3EEii weak of _Z4partILi3EEii",
                "_Z5neveri global",
                "_ZL6helperi in demo.cpp",
                "main global",
            ];
            assert_eq!(described(&code), expected, "{target}");
            assert!(
                code.sections.iter().all(|section| section.size > 0 && section.alignment.is_power_of_two())
            );
            assert!(code.section_count > code.sections.len());
        }
    }

    #[test]
    fn sections_are_named_after_functions() {
        let tail =
            |name: &str| tail_of(name.as_bytes()).map(|tail| String::from_utf8_lossy(tail).into_owned());
        assert_eq!(tail(".text.main").as_deref(), Some("main"));
        assert_eq!(tail(".text.startup.main").as_deref(), Some("main"));
        assert_eq!(tail(".gnu.linkonce.t._Z1fv").as_deref(), Some("_Z1fv"));
        assert_eq!(
            (tail(".text"), tail(".text."), tail(".text.unlikely"), tail(".init")),
            (None, None, None, None)
        );
    }

    proptest! {
        #[test]
        fn damaged_objects_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
            length in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            static OBJECT: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| compiled(&[]));
            let mut bytes = OBJECT.clone();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if is_cut {
                bytes.truncate(length.index(bytes.len()));
            }
            check(&bytes);
        }
    }

    fn check(bytes: &[u8]) {
        let Some(code) = read_object(bytes) else { return };
        let names =
            code.sections.iter().flat_map(|section| &section.functions).map(|function| function.name.len());
        assert!(names.sum::<usize>() <= 4 * bytes.len());
        assert!(code.sections.windows(2).all(|pair| pair[0].index < pair[1].index));
        assert!(code.sections.iter().all(|section| section.size <= bytes.len() as u64));
    }
}
