//! Writes an image, and the same with copies of fragments, byte by byte: these tests depend on no code that makes copies.

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
pub(crate) const COPIES_SIZE: u64 = 0x80;
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

/// A function with an unwind entry.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// First address.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// The entry's rules.
    pub(crate) rules: Vec<u8>,
    /// The exception table.
    pub(crate) table: Option<Vec<u8>>,
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
    /// The functions, ascending.
    pub(crate) functions: Vec<Function>,
    /// Whether entries name exception tables.
    pub(crate) has_tables: bool,
    /// The copies, ascending.
    pub(crate) fragments: Vec<Fragment>,
    /// Copied tables of distances.
    pub(crate) jump_tables: Vec<JumpTable>,
}

/// A table of distances, and where its copy is.
#[derive(Clone, Debug)]
pub(crate) struct JumpTable {
    /// First address of the original.
    pub(crate) original: u64,
    /// First address of the copy.
    pub(crate) copy: u64,
    /// Where the entries lead, in the original and in the copy.
    pub(crate) targets: Vec<(u64, u64)>,
}

/// Four-byte distances from `start`.
fn distances(start: u64, targets: impl Iterator<Item = u64>) -> Vec<u8> {
    targets.flat_map(|target| (target.wrapping_sub(start) as u32).to_le_bytes()).collect()
}

/// `EM_X86_64`.
pub(crate) const X86_64: u16 = 62;
/// `BRK #1`.
pub(crate) const BREAK: u32 = 0xd420_0020;

/// Writes `what` at position `at`.
pub(crate) fn put(bytes: &mut [u8], at: u64, what: &[u8]) {
    bytes[at as usize..at as usize + what.len()].copy_from_slice(what);
}

impl Design {
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
        self.functions.iter().map(|function| function.table.as_ref().map(&mut place)).collect()
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
        for (function, table) in self.functions.iter().zip(self.old_tables()) {
            add((function.start, function.size), &function.rules, table.map(|(address, _)| address));
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
    pub(crate) fn without_copies(&self) -> Vec<u8> {
        let mut bytes = vec![0; OLD_LENGTH as usize];
        let (frames, rows) = self.frames(FRAMES, false);
        let search = search_table(HEADER_TABLE, FRAMES, &rows);
        put(&mut bytes, TEXT, &self.text);
        put(&mut bytes, HEADER_TABLE, &search);
        put(&mut bytes, FRAMES, &frames);
        for (address, table) in self.old_tables().into_iter().flatten() {
            put(&mut bytes, address, &table);
        }
        for table in &self.jump_tables {
            let targets = table.targets.iter().map(|target| target.0);
            put(&mut bytes, table.original, &distances(table.original, targets));
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
    pub(crate) fn with_copies(&self) -> Vec<u8> {
        let old = self.without_copies();
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
        for table in &self.jump_tables {
            let targets = table.targets.iter().map(|target| target.1);
            put(&mut bytes, file(table.copy), &distances(table.copy, targets));
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
        numbers.push(self.jump_tables.len() as u64);
        for table in &self.jump_tables {
            numbers.extend([table.original, table.copy, 4, table.targets.len() as u64]);
        }
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
