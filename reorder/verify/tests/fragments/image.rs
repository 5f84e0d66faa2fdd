//! A small image of four functions, and the same with copies of fragments. Both are written byte by byte, so the
//! tests depend on no code that makes copies.
//!
//! ```text
//! 0x1000 first:  push rbp; test edi, edi; je cold; call second; cold: pop rbp; ret
//! 0x1010 second: xor eax, eax; jmp third
//! 0x1020 third:  lea rax, [second]; ret
//! 0x1030 other:  call first; ret                       no copy
//!
//! 0x5000 push rbp; test edi, edi; je 0x100a            copy of 0x1000..0x1005
//! 0x5009 call 0x5020; jmp 0x100a                       copy of 0x1005..0x100a
//! 0x5020 xor eax, eax; jmp 0x1020                      copy of 0x1010..0x1017
//! ```
//!
//! The image for AArch64 has the same functions and copies in words.

const TEXT: u64 = 0x1000;
const HEADER_TABLE: u64 = 0x2000;
const FRAMES: u64 = 0x2100;
/// First address of the exception tables of functions.
pub(crate) const TABLES: u64 = 0x2800;
const OLD_NAMES: u64 = 0x3000;
const OLD_SECTIONS: u64 = 0x3080;
/// Bytes of the names of sections without copies.
const NAMES_SIZE: u64 = 0x80;
/// Bytes of the image without copies.
const OLD_LENGTH: u64 = 0x3400;

/// First address of the segment of copies.
pub(crate) const COPIES: u64 = 0x5000;
/// Position of the segment in the file.
pub(crate) const SEGMENT_OFFSET: u64 = 0x4000;
/// Bytes of the section of copies.
pub(crate) const COPIES_SIZE: u64 = 0x40;
/// First address of the exception tables of copies.
pub(crate) const NEW_TABLES: u64 = COPIES + 0x380;
const NEW_FRAMES: u64 = COPIES + 0x80;
/// Bytes of the segment.
pub(crate) const SEGMENT_SIZE: u64 = 0x400;

/// One fragment, and where its copy is.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    /// First address of the original.
    pub(crate) original: u64,
    /// Bytes of the original.
    pub(crate) size: u64,
    /// First address of the copy.
    pub(crate) copy: u64,
    /// The copy.
    pub(crate) code: Vec<u8>,
    /// The entry's rules; `None` for no entry.
    pub(crate) rules: Option<Vec<u8>>,
    /// The exception table in the segment, as its address and bytes.
    pub(crate) table: Option<(u64, Vec<u8>)>,
}

/// What a pair of images is made of.
#[derive(Clone, Debug)]
pub(crate) struct Design {
    /// `e_machine`.
    pub(crate) machine: u16,
    /// The code from 0x1000 on.
    pub(crate) text: Vec<u8>,
    /// The same, leading to copies.
    pub(crate) new_text: Vec<u8>,
    /// Functions: start, size, rules, exception table (bytes).
    pub(crate) functions: Vec<(u64, u64, Vec<u8>, Option<Vec<u8>>)>,
    /// Whether entries name exception tables.
    pub(crate) has_tables: bool,
    /// The copies, ascending.
    pub(crate) fragments: Vec<Fragment>,
}

/// `DW_CFA_advance_loc`.
pub(crate) const fn advance(bytes: u8) -> u8 {
    0x40 | bytes
}
/// `DW_CFA_def_cfa_offset`.
pub(crate) const FRAME_OFFSET: u8 = 0x0e;
/// `DW_CFA_offset` of `rbp`; the operand is a multiple of -8.
pub(crate) const SAVED_RBP: u8 = 0x86;
/// `DW_CFA_restore` of `rbp`.
pub(crate) const RESTORED_RBP: u8 = 0xc6;

/// `EM_X86_64`.
const X86_64: u16 = 62;
/// `BRK #1`.
const BREAK: u32 = 0xd420_0020;

/// The word of a branch at `place`; `opcode` is that of `B` or `BL`.
pub(crate) fn branch(opcode: u32, place: u64, target: u64) -> u32 {
    opcode | (target.wrapping_sub(place) >> 2) as u32 & 0x03ff_ffff
}

/// `CBZ w0, target`.
fn compare_and_branch(place: u64, target: u64) -> u32 {
    0x3400_0000 | ((target.wrapping_sub(place) >> 2) as u32 & 0x7_ffff) << 5
}

/// `opcode` followed by the distance from `end` to `target`.
pub(crate) fn to(opcode: &[u8], end: u64, target: u64) -> Vec<u8> {
    [opcode, &(target.wrapping_sub(end) as u32).to_le_bytes()].concat()
}

fn put(bytes: &mut [u8], at: u64, what: &[u8]) {
    bytes[at as usize..at as usize + what.len()].copy_from_slice(what);
}

impl Design {
    /// The images of the head of this file.
    pub(crate) fn plain() -> Self {
        let mut text = vec![0xcc; 0x40];
        let first =
            [&[0x55, 0x85, 0xff, 0x74, 0x05][..], &to(&[0xe8], 0x100a, 0x1010), &[0x5d, 0xc3]].concat();
        put(&mut text, 0, &first);
        put(&mut text, 0x10, &[&[0x31, 0xc0][..], &to(&[0xe9], 0x1017, 0x1020)].concat());
        put(&mut text, 0x20, &[&to(&[0x48, 0x8d, 0x05], 0x1027, 0x1010)[..], &[0xc3]].concat());
        put(&mut text, 0x30, &[&to(&[0xe8], 0x1035, 0x1000)[..], &[0xc3]].concat());
        let mut new_text = text.clone();
        put(&mut new_text, 5, &to(&[0xe8], 0x100a, 0x5020));
        put(&mut new_text, 0x30, &to(&[0xe8], 0x1035, 0x5000));
        let framed =
            vec![advance(1), FRAME_OFFSET, 16, SAVED_RBP, 2, advance(10), FRAME_OFFSET, 8, RESTORED_RBP];
        let functions = vec![
            (0x1000, 12, framed, None),
            (0x1010, 7, vec![], None),
            (0x1020, 8, vec![], None),
            (0x1030, 6, vec![], None),
        ];
        let copy = |original, size, copy, code: Vec<u8>, rules: &[u8]| Fragment {
            original,
            size,
            copy,
            code,
            rules: Some(rules.to_vec()),
            table: None,
        };
        let fragments = vec![
            copy(
                0x1000,
                5,
                0x5000,
                [&[0x55, 0x85, 0xff][..], &to(&[0x0f, 0x84], 0x5009, 0x100a)].concat(),
                &[advance(1), FRAME_OFFSET, 16, SAVED_RBP, 2],
            ),
            copy(
                0x1005,
                5,
                0x5009,
                [to(&[0xe8], 0x500e, 0x5020), to(&[0xe9], 0x5013, 0x100a)].concat(),
                &[FRAME_OFFSET, 16, SAVED_RBP, 2],
            ),
            copy(0x1010, 7, 0x5020, [&[0x31, 0xc0][..], &to(&[0xe9], 0x5027, 0x1020)].concat(), &[]),
        ];
        Self { machine: X86_64, text, new_text, functions, has_tables: false, fragments }
    }

    /// The functions of the head of this file for AArch64:
    /// `first` is `stp x29, x30, [sp, #-16]!; cbz w0, cold; bl second; cold: ldp x29, x30, [sp], #16; ret`.
    pub(crate) fn aarch64() -> Self {
        const SAVE: u32 = 0xa9bf_7bfd;
        const CLEAR: u32 = 0x2a1f_03e0;
        const RETURN: u32 = 0xd65f_03c0;
        const NO_OPERATION: u32 = 0xd503_201f;
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mut text = code(&[BREAK; 16]);
        let skip = compare_and_branch(0x1004, 0x100c);
        let call = branch(0x9400_0000, 0x1008, 0x1020);
        put(&mut text, 0, &code(&[SAVE, skip, call, 0xa8c1_7bfd, RETURN]));
        put(&mut text, 0x20, &code(&[CLEAR, branch(0x1400_0000, 0x1024, 0x1030)]));
        put(&mut text, 0x30, &code(&[NO_OPERATION, RETURN]));
        put(&mut text, 0x38, &code(&[branch(0x9400_0000, 0x1038, 0x1000), RETURN]));
        let mut new_text = text.clone();
        put(&mut new_text, 8, &code(&[branch(0x9400_0000, 0x1008, 0x5020)]));
        put(&mut new_text, 0x38, &code(&[branch(0x9400_0000, 0x1038, 0x5000)]));
        let saved = [FRAME_OFFSET, 16, 0x9d, 2, 0x9e, 1];
        let framed = [&[advance(4)][..], &saved, &[advance(12), FRAME_OFFSET, 0, 0xdd, 0xde]].concat();
        let functions = vec![
            (0x1000, 20, framed, None),
            (0x1020, 8, vec![], None),
            (0x1030, 8, vec![], None),
            (0x1038, 8, vec![], None),
        ];
        let copy = |original, size, copy, code: Vec<u8>, rules: &[u8]| Fragment {
            original,
            size,
            copy,
            code,
            rules: Some(rules.to_vec()),
            table: None,
        };
        let fragments = vec![
            copy(
                0x1000,
                8,
                0x5000,
                code(&[SAVE, compare_and_branch(0x5004, 0x100c)]),
                &[&[advance(4)][..], &saved].concat(),
            ),
            copy(
                0x1008,
                4,
                0x5008,
                code(&[branch(0x9400_0000, 0x5008, 0x5020), branch(0x1400_0000, 0x500c, 0x100c)]),
                &saved,
            ),
            copy(0x1020, 8, 0x5020, code(&[CLEAR, branch(0x1400_0000, 0x5024, 0x1030)]), &[]),
        ];
        Self { machine: 183, text, new_text, functions, has_tables: false, fragments }
    }

    /// The parent of all entries: at the start of a function the canonical frame address is `rsp + 8` with the return
    /// address before it, or `sp`.
    fn parent(&self) -> Vec<u8> {
        let letters: &[u8] = if self.has_tables { b"zLR\0" } else { b"zR\0" };
        let encodings: &[u8] = if self.has_tables { &[2, 0x1b, 0x1b] } else { &[1, 0x1b] };
        let body =
            [&[0, 0, 0, 0, 1][..], letters, &[1, 0x78, 16], encodings, &[0x0c, 7, 8, 0x90, 1]].concat();
        record(&body)
    }

    fn entry(
        &self,
        section: u64,
        at: u64,
        (start, size): (u64, u64),
        rules: &[u8],
        table: Option<u64>,
    ) -> Vec<u8> {
        let place = section + at;
        let mut body = (at as u32 + 4).to_le_bytes().to_vec();
        body.extend((start.wrapping_sub(place + 8) as u32).to_le_bytes());
        body.extend((size as u32).to_le_bytes());
        body.push(if self.has_tables { 4 } else { 0 });
        if self.has_tables {
            body.extend(table.map_or(0, |table| table.wrapping_sub(place + 17) as u32).to_le_bytes());
        }
        body.extend(rules);
        record(&body)
    }

    /// Addresses of the functions' exception tables, ascending with the functions.
    fn old_tables(&self) -> Vec<Option<(u64, Vec<u8>)>> {
        let mut next = TABLES;
        let mut place = |table: &Vec<u8>| {
            let address = next;
            next += (table.len() as u64).next_multiple_of(4);
            (address, table.clone())
        };
        self.functions.iter().map(|function| function.3.as_ref().map(&mut place)).collect()
    }

    /// Entries of all functions, and of the copies if there are any, for a section at `section`; and the rows of the search
    /// table.
    fn frames(&self, section: u64, with_copies: bool) -> (Vec<u8>, Vec<(u64, u64)>) {
        let mut bytes = self.parent();
        let mut rows = Vec::new();
        let mut add = |range: (u64, u64), rules: &[u8], table: Option<u64>| {
            let at = bytes.len() as u64;
            bytes.extend(self.entry(section, at, range, rules, table));
            rows.push((range.0, section + at));
        };
        for ((start, size, rules, _), table) in self.functions.iter().zip(self.old_tables()) {
            add((*start, *size), rules, table.map(|(address, _)| address));
        }
        for fragment in self.fragments.iter().filter(|_| with_copies) {
            let range = (fragment.copy, fragment.code.len() as u64);
            let table = fragment.table.as_ref().map(|(address, _)| *address);
            fragment.rules.iter().for_each(|rules| add(range, rules, table));
        }
        bytes.extend([0; 4]);
        (bytes, rows)
    }

    /// The image without copies.
    pub(crate) fn old(&self) -> Vec<u8> {
        let mut bytes = vec![0; OLD_LENGTH as usize];
        let (frames, rows) = self.frames(FRAMES, false);
        let search = search_table(HEADER_TABLE, FRAMES, &rows);
        put(&mut bytes, TEXT, &self.text);
        put(&mut bytes, HEADER_TABLE, &search);
        put(&mut bytes, FRAMES, &frames);
        for (address, table) in self.old_tables().into_iter().flatten() {
            put(&mut bytes, address, &table);
        }
        put(&mut bytes, 0, &file_header(self.machine, OLD_SECTIONS, 6));
        let search_size = search.len() as u64;
        put(&mut bytes, 64, &program_header(1, 5, 0, 0, 0x3000, 0x1000));
        put(&mut bytes, 120, &program_header(4, 4, 0x2f00, 0x2f00, 0x20, 4));
        put(&mut bytes, 176, &program_header(0x6474_e550, 4, HEADER_TABLE, HEADER_TABLE, search_size, 4));
        let sections = [
            (".text", 1, 6, TEXT, TEXT, self.text.len() as u64),
            (".eh_frame_hdr", 1, 2, HEADER_TABLE, HEADER_TABLE, search_size),
            (".eh_frame", 1, 2, FRAMES, FRAMES, frames.len() as u64),
            (".gcc_except_table", 1, 2, TABLES, TABLES, 0x100),
        ];
        write_sections(&mut bytes, (OLD_NAMES, OLD_SECTIONS), &sections, &[]);
        bytes
    }

    /// The image with copies.
    pub(crate) fn new(&self) -> Vec<u8> {
        let old = self.old();
        let mut bytes = old.clone();
        bytes.resize((SEGMENT_OFFSET + SEGMENT_SIZE) as usize, 0);
        put(&mut bytes, TEXT, &self.new_text);
        let file = |address: u64| address - COPIES + SEGMENT_OFFSET;
        let filler = match self.machine {
            X86_64 => [0xcc; 4],
            _ => BREAK.to_le_bytes(),
        };
        put(&mut bytes, SEGMENT_OFFSET, &filler.repeat(COPIES_SIZE as usize / 4));
        for fragment in &self.fragments {
            put(&mut bytes, file(fragment.copy), &fragment.code);
            fragment.table.iter().for_each(|(address, table)| put(&mut bytes, file(*address), table));
        }
        let (frames, mut rows) = self.frames(NEW_FRAMES, true);
        rows.sort_unstable();
        let header_at = (NEW_FRAMES + frames.len() as u64).next_multiple_of(4);
        let search = search_table(header_at, NEW_FRAMES, &rows);
        put(&mut bytes, file(NEW_FRAMES), &frames);
        put(&mut bytes, file(header_at), &search);
        let search_size = search.len() as u64;
        put(&mut bytes, 120, &program_header(1, 5, SEGMENT_OFFSET, COPIES, SEGMENT_SIZE, 0x1000));
        put(&mut bytes, 176, &program_header(0x6474_e550, 4, file(header_at), header_at, search_size, 4));
        let changed = (64..232).chain(TEXT as usize..TEXT as usize + self.text.len());
        let header = file_header(self.machine, bytes.len() as u64 + 0x400, 9);
        put(&mut bytes, 0, &header);
        let list = self.list(&old, &bytes, (0..64).chain(changed));
        let list_at = bytes.len() as u64 + 0x800;
        bytes.resize(list_at as usize, 0);
        bytes.extend(&list);
        let sections = [
            (".text", 1, 6, TEXT, TEXT, self.text.len() as u64),
            (".eh_frame_hdr", 1, 2, header_at, file(header_at), search_size),
            (".eh_frame", 1, 2, NEW_FRAMES, file(NEW_FRAMES), frames.len() as u64),
            (".gcc_except_table", 1, 2, TABLES, TABLES, 0x100),
        ];
        let added = [
            (".text.reorder", 1, 6, COPIES, SEGMENT_OFFSET, COPIES_SIZE),
            (".gcc_except_table.reorder", 1, 2, NEW_TABLES, file(NEW_TABLES), 0x80),
            (".reorder.clones", 1, 0, 0, list_at, list.len() as u64),
        ];
        let end = SEGMENT_OFFSET + SEGMENT_SIZE;
        write_sections(&mut bytes, (end, end + 0x400), &sections, &added);
        bytes
    }

    /// The record of copies; `places` are the file positions that may differ.
    fn list(&self, old: &[u8], new: &[u8], places: impl Iterator<Item = usize>) -> Vec<u8> {
        let mut numbers = vec![OLD_LENGTH, self.fragments.len() as u64];
        for fragment in &self.fragments {
            numbers.extend([fragment.original, fragment.copy, fragment.size, fragment.code.len() as u64]);
        }
        numbers.push(0);
        let differing: Vec<usize> = places.filter(|at| old[*at] != new[*at]).collect();
        numbers.push(differing.len() as u64);
        let mut list = b"REORDCL2".to_vec();
        numbers.iter().for_each(|number| list.extend(number.to_le_bytes()));
        for at in differing {
            list.extend((at as u64).to_le_bytes());
            list.extend(1_u64.to_le_bytes());
            list.push(old[at]);
        }
        list
    }
}

/// A record of `.eh_frame` with its length, padded to four bytes.
fn record(body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

fn search_table(address: u64, frames: u64, rows: &[(u64, u64)]) -> Vec<u8> {
    let distance = |target: u64, from: u64| (target.wrapping_sub(from) as u32).to_le_bytes();
    let mut table = vec![1, 0x1b, 3, 0x3b];
    table.extend(distance(frames, address + 4));
    table.extend((rows.len() as u32).to_le_bytes());
    for (start, entry) in rows {
        table.extend(distance(*start, address));
        table.extend(distance(*entry, address));
    }
    table
}

/// The table of names is section 5.
fn file_header(machine: u16, sections: u64, count: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([3, 0]);
    header.extend(machine.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    [0x1030, 64, sections].iter().for_each(|number| header.extend(number.to_le_bytes()));
    header.extend([0; 4]);
    [64_u16, 56, 3, 64, count, 5].iter().for_each(|number| header.extend(number.to_le_bytes()));
    header
}

fn program_header(kind: u32, flags: u32, offset: u64, address: u64, size: u64, alignment: u64) -> Vec<u8> {
    let mut header = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
    [offset, address, address, size, size, alignment]
        .iter()
        .for_each(|number| header.extend(number.to_le_bytes()));
    header
}

/// Name, `sh_type`, `sh_flags`, address, position and size.
type Section<'name> = (&'name str, u32, u64, u64, u64, u64);

/// Writes headers at `headers` and names at `names`: `sections`, the table of names, and the `added` sections, whose names
/// follow the others.
fn write_sections(
    bytes: &mut [u8],
    (names_at, headers_at): (u64, u64),
    sections: &[Section<'_>],
    added: &[Section<'_>],
) {
    let added_size: usize = added.iter().map(|section| section.0.len() + 1).sum();
    let names_size = (NAMES_SIZE as usize + added_size) as u64;
    let table_of_names = (".shstrtab", 3, 0, 0, names_at, names_size);
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    for (index, section) in sections.iter().chain([&table_of_names]).chain(added).enumerate() {
        if index == sections.len() + 1 {
            names.resize(NAMES_SIZE as usize, 0);
        }
        let (name, kind, flags, address, offset, size) = *section;
        headers.extend((names.len() as u32).to_le_bytes());
        headers.extend(u32::to_le_bytes(kind));
        [flags, address, offset, size, 0, 1, 0]
            .iter()
            .for_each(|number| headers.extend(u64::to_le_bytes(*number)));
        names.extend(name.bytes().chain([0]));
    }
    put(bytes, names_at, &names);
    put(bytes, headers_at, &headers);
}
