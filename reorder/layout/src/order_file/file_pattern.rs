//! How a linker script names one of several input sections of the same name: by the file, `*lib.a:a.o(.text.f)`.
//!
//! In: the sections of a link. Out: for each a pattern that GNU ld and lld match against it and against no other section of
//! its map, as far as their files have different names. A section whose name is unique is named by that alone. Else
//! as little of the path is used as tells the files apart, because the next link may run in another directory; of
//! temporary files, whose names change with every link, only the part that does not.
//!
//! A pattern without colon is matched against plain files and members, `:file` against plain files, `archive:file` against
//! members (GNU ld, "Input Section Basics"; lld does the same).

use std::collections::{BTreeMap, BTreeSet};

use reorder_trace::link_map::{LinkMap, ObjectFile, SectionIndex};

/// The patterns of `sections`, in their order, each once.
pub(super) fn patterns(map: &LinkMap<'_>, sections: &[SectionIndex]) -> Vec<String> {
    let mut namesakes: BTreeMap<&[u8], Namesakes> = BTreeMap::new();
    let wanted: BTreeSet<&[u8]> = sections.iter().map(|&section| map.get(section).name).collect();
    for section in &map.sections {
        if wanted.contains(section.name) {
            namesakes.entry(section.name).or_default().add(ObjectFile::of(section.object));
        }
    }
    namesakes.values_mut().for_each(Namesakes::sort);
    let mut written = BTreeSet::new();
    let mut patterns = Vec::with_capacity(sections.len());
    for &index in sections {
        let section = map.get(index);
        let name = escaped(section.name);
        let file = match namesakes.get(section.name) {
            // A name with other characters may mean more sections than this.
            Some(others) if others.count > 1 || name.as_bytes() != section.name => {
                others.pattern_of(ObjectFile::of(section.object))
            }
            _ => "*".to_owned(),
        };
        let pattern = format!("{file}({name})");
        if written.insert(pattern.clone()) {
            patterns.push(pattern);
        }
    }
    patterns
}

/// The files that have a section of one name, as linkers match them, backwards and sorted: those that end alike are
/// adjacent.
#[derive(Default)]
struct Namesakes {
    count: usize,
    plain: Vec<Vec<u8>>,
    members: Vec<Vec<u8>>,
}

impl Namesakes {
    fn add(&mut self, file: ObjectFile<'_>) {
        self.count += 1;
        let list = if file.archive.is_some() { &mut self.members } else { &mut self.plain };
        list.push(full_name(file).into_iter().rev().collect());
    }

    fn sort(&mut self) {
        for list in [&mut self.plain, &mut self.members] {
            list.sort_unstable();
            list.dedup();
        }
    }

    fn pattern_of(&self, file: ObjectFile<'_>) -> String {
        let leaf = file.leaf();
        if let Some(lasting) = lasting_part(file) {
            return format!("*{lasting}");
        }
        let plain_end = full_name(leaf);
        if file.archive.is_none() && ending(&self.plain, &plain_end) + ending(&self.members, &plain_end) <= 1
        {
            return format!("*{}", escaped(&plain_end));
        }
        let (list, sign) = if file.archive.is_some() { (&self.members, "") } else { (&self.plain, ":") };
        let whole = full_name(file);
        let path_length = whole.len() - file.archive.map_or(0, |_| 1 + file.name.len());
        // One more component of the path each time; the leading slash makes it a whole one.
        let mut starts: Vec<usize> =
            (0..path_length).rev().filter(|&at| whole[at] == b'/').take(COMPONENTS).collect();
        let leaf_start = starts.first().map_or(0, |at| at + 1);
        starts.insert(0, leaf_start);
        let unique = starts.into_iter().find(|&at| ending(list, &whole[at..]) <= 1);
        match unique {
            Some(at) => format!("{sign}*{}", escaped(&whole[at..])),
            None => format!("{sign}{}", escaped(&whole)),
        }
    }
}

/// Directories of a path that are tried; files that only others tell apart are named by the whole path.
const COMPONENTS: usize = 64;

/// What a pattern is matched against.
fn full_name(file: ObjectFile<'_>) -> Vec<u8> {
    match file.archive {
        Some(archive) => [archive, b":", file.name].concat(),
        None => file.name.to_vec(),
    }
}

/// How many of the sorted backward names end with `end`.
fn ending(backwards: &[Vec<u8>], end: &[u8]) -> usize {
    let end: Vec<u8> = end.iter().rev().copied().collect();
    let first = backwards.partition_point(|name| name.as_slice() < end.as_slice());
    backwards[first..].partition_point(|name| name.starts_with(&end))
}

/// Of an object that only this link had: what its name has in every link. gcc writes `/tmp/ccXXXXXX.ltrans0.ltrans.o` and
/// `/tmp/ccXXXXXX.o`, clang `/tmp/name-0a1b2c.o`.
fn lasting_part(file: ObjectFile<'_>) -> Option<String> {
    let name = file.leaf().name;
    let directory = &file.name[..file.name.len() - name.len()];
    let directory = String::from_utf8_lossy(directory).to_ascii_lowercase();
    let is_temporary = ["tmp", "temp", "shm"].iter().any(|word| directory.contains(word));
    if file.archive.is_some() || !is_temporary {
        return None;
    }
    if let Some(rest) = name.strip_prefix(b"cc") {
        let end = rest.iter().position(|&byte| byte == b'.')?;
        let is_random = end == 6 && rest[..end].iter().all(u8::is_ascii_alphanumeric);
        return is_random.then(|| escaped(&rest[end..]));
    }
    let stem = name.strip_suffix(b".o")?;
    let dash = stem.iter().rposition(|&byte| byte == b'-')?;
    let is_random = stem.len() - dash > 6 && stem[dash + 1..].iter().all(u8::is_ascii_hexdigit);
    is_random.then(|| format!("{}*.o", escaped(&stem[..=dash])))
}

/// The name with `?` for each character that has a meaning in patterns or scripts. What is not ASCII may be one character or
/// several bytes, depending on the language of the linker's user.
pub(super) fn escaped(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'$' | b'-' | b'+' | b'/' | b':' => {
                out.push(char::from(byte));
            }
            0x80.. if out.ends_with('*') => {}
            0x80.. => out.push('*'),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use reorder_base::address::Address;
    use reorder_trace::link_map::PlacedSection;

    fn patterns_of(objects: &[&str], name: &str) -> Vec<String> {
        let section = |object: &&'static str| PlacedSection {
            address: Address(1),
            size: 1,
            alignment: None,
            output: b".text",
            object: object.as_bytes(),
            name: &[],
        };
        let objects: Vec<&'static str> =
            objects.iter().map(|object| String::leak((*object).to_owned()) as &_).collect();
        let mut map = LinkMap::default();
        for object in &objects {
            map.sections.push(PlacedSection { name: name.as_bytes(), ..section(object) });
        }
        let all: Vec<_> = (0..objects.len() as u32).map(SectionIndex).collect();
        let patterns = patterns(&map, &all);
        patterns.iter().map(|pattern| pattern.replace(&format!("({name})"), "")).collect()
    }

    #[test]
    fn as_little_of_the_path_is_used_as_tells_files_apart() {
        assert_eq!(patterns_of(&["x/a.o"], "f"), ["*"]);
        assert_eq!(patterns_of(&["x/a.o", "x/b.o"], "f"), ["*a.o", "*b.o"]);
        assert_eq!(patterns_of(&["x/a.o", "x/ba.o"], "f"), [":*/a.o", "*ba.o"]);
        assert_eq!(patterns_of(&["a.o", "ba.o"], "f"), [":a.o", "*ba.o"]);
        assert_eq!(patterns_of(&["x/a.o", "y/a.o"], "f"), [":*x/a.o", ":*y/a.o"].map(|p| p.replace('*', "")));
        assert_eq!(patterns_of(&["/r/x/a.o", "/r/y/a.o"], "f"), [":*/x/a.o", ":*/y/a.o"]);
        assert_eq!(patterns_of(&["a.o", "l.a(a.o)"], "f"), [":*a.o", "*l.a:a.o"]);
        assert_eq!(
            patterns_of(&["l.a(a.o)", "l.a(b.o)", "/k/l.a(a.o)"], "f"),
            ["l.a:a.o", "*l.a:b.o", "*/l.a:a.o"]
        );
    }

    #[test]
    fn temporary_names_are_cut_to_what_lasts() {
        assert_eq!(
            patterns_of(&["/tmp/cc3Xy12z.ltrans0.ltrans.o", "/tmp/cc3Xy12z.ltrans1.ltrans.o"], "f"),
            ["*.ltrans0.ltrans.o", "*.ltrans1.ltrans.o"]
        );
        assert_eq!(patterns_of(&["/tmp/part-0a1b2c.o", "b.o"], "f"), ["*part-*.o", "*b.o"]);
        assert_eq!(patterns_of(&["src/ccontrol.o", "src/b.o"], "f"), ["*ccontrol.o", "*b.o"]);
    }

    #[test]
    fn odd_characters_are_matched_by_any() {
        assert_eq!(escaped(b".text.we[i]rd?*\xc3\xa4 x\"(y)"), ".text.we?i?rd??*?x??y?");
    }
}
