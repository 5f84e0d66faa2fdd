//! Files of one directory to runs.
//!
//! Ranks count up through a whole program, whose object files write a file each: a run is the union of its files.
//! Runs lie in directories of their own, which shows when several hold the same object file.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use super::profile_id::gcc_profile_id;
use super::{beside, nameless, without_names};
use crate::{Event, Evidence, Location, NameHash, Note, Reading, Trace};

/// One trace for each run, in the order of their directories; counts apart from orders. A note that many files
/// share is given once for all of them.
pub(crate) fn join(files: Vec<Reading>) -> Reading {
    let mut told = joined_notes(&files);
    let traces = files.into_iter().flat_map(|file| file.traces);
    let mut runs = Vec::new();
    split(traces.map(Part::new).collect(), &mut runs);
    let mut joined = Vec::new();
    for (run, parts) in (1u32..).zip(runs) {
        let (ordered, counted): (Vec<Part>, Vec<Part>) =
            parts.into_iter().partition(|part| part.trace.evidence.is_ordered());
        for parts in [ordered, counted].into_iter().filter(|parts| !parts.is_empty()) {
            let trace = united(parts, &mut told);
            joined.push(Trace { run, ..trace });
        }
    }
    Reading { traces: joined, notes: told }
}

/// The notes of all files, each message once.
fn joined_notes(files: &[Reading]) -> Vec<Note> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unnamed = (0, 0);
    let mut notes: Vec<&Note> = Vec::new();
    for file in files {
        let functions: usize = file.traces.iter().map(nameless).sum();
        let own = without_names(functions, "").filter(|_| files.len() > 1);
        unnamed = (unnamed.0 + functions, unnamed.1 + usize::from(functions > 0));
        for note in
            file.notes.iter().filter(|note| own.as_ref().is_none_or(|own| own.message != note.message))
        {
            *counts.entry(&note.message).or_default() += 1;
            notes.push(note);
        }
    }
    let mut told: Vec<Note> = Vec::new();
    for note in notes {
        // The first file stands for all.
        let Some(count) = counts.remove(note.message.as_str()) else { continue };
        let mut note = note.clone();
        if count > 1 {
            note.message.push_str(&format!(" (this file and {} more)", count - 1));
        }
        told.push(note);
    }
    if files.len() > 1 && unnamed.1 > 0 {
        let first = files.iter().flat_map(|file| &file.traces).find(|trace| nameless(trace) > 0);
        let source = first.and_then(|trace| trace.source.clone()).unwrap_or_default();
        let note = without_names(unnamed.0, &beside(&source));
        told.extend(note.map(|note| Note {
            message: format!("in {} of {} files {}", unnamed.1, files.len(), note.message),
            ..note
        }));
    }
    told
}

/// One file.
struct Part {
    path: Vec<PathBuf>,
    /// What the file says about its compilation, and its name.
    object: (Option<[u8; IDENTITY]>, PathBuf),
    trace: Trace,
}

/// Kind, version, stamp, and what follows: a checksum, or the first record.
const IDENTITY: usize = 16;

impl Part {
    fn new(trace: Trace) -> Self {
        let source = trace.source.clone().unwrap_or_default();
        let name = source.file_name().map(PathBuf::from).unwrap_or_default();
        let path = source.components().map(|component: Component<'_>| component.as_os_str().into()).collect();
        Self { path, object: (identity(&source), name), trace }
    }
}

fn identity(file: &Path) -> Option<[u8; IDENTITY]> {
    let mut bytes = [0; IDENTITY];
    std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    Some(bytes)
}

/// Takes files apart until none has two of one object, each time at the first directory in which two such differ.
fn split(parts: Vec<Part>, runs: &mut Vec<Vec<Part>>) {
    let Some(depth) = first_difference(&parts) else {
        runs.push(parts);
        return;
    };
    // Files come sorted; groups keep the order of their first file.
    let mut groups: Vec<(Option<PathBuf>, Vec<Part>)> = Vec::new();
    for part in parts {
        let directory = part.path.get(depth).cloned();
        match groups.iter_mut().find(|(group, _)| *group == directory) {
            Some((_, group)) => group.push(part),
            None => groups.push((directory, vec![part])),
        }
    }
    if let [(_, _)] = groups.as_slice() {
        // The same path twice: only the files themselves distinguish the runs.
        runs.extend(groups.into_iter().flat_map(|(_, group)| group).map(|part| vec![part]));
        return;
    }
    groups.into_iter().for_each(|(_, group)| split(group, runs));
}

/// The smallest number of leading directories that two files of one object share.
fn first_difference(parts: &[Part]) -> Option<usize> {
    let mut first: HashMap<_, &Part> = HashMap::new();
    let mut depth = None::<usize>;
    for part in parts {
        match first.entry(&part.object) {
            Entry::Vacant(entry) => {
                entry.insert(part);
            }
            Entry::Occupied(entry) => {
                let shared = entry.get().path.iter().zip(&part.path).take_while(|(a, b)| a == b).count();
                depth = Some(depth.map_or(shared, |depth| depth.min(shared)));
            }
        }
    }
    depth
}

/// The files of one run as one trace.
fn united(parts: Vec<Part>, notes: &mut Vec<Note>) -> Trace {
    let count = parts.len();
    let source = common_directory(&parts);
    let mut evidence = Evidence::Exact;
    let mut events = Vec::new();
    for part in parts {
        if part.trace.evidence != Evidence::Exact {
            evidence = part.trace.evidence;
        }
        if count == 1 {
            return part.trace;
        }
        events.extend(part.trace.events);
    }
    events.sort_by_key(|event| (event.tick, Reverse(event.count), hash(event)));
    // Names of local functions repeat, their hashes do not: the second is the same function in another object.
    let mut hashes = HashSet::new();
    events.retain(|event| match event.location {
        Location::NameHash(hash) => hashes.insert(hash),
        _ => true,
    });
    // Of one process each rank is given once: several images, or processes, counted for themselves.
    let tied =
        events.windows(2).filter(|pair| pair[0].tick.is_some() && pair[0].tick == pair[1].tick).count();
    if tied > 0 && evidence == Evidence::Exact {
        evidence = Evidence::Blended;
        notes.push(Note { file: Some(source.clone()), ..ties(tied, count) });
    }
    Trace { weight: 1, evidence, events, source: Some(source), ..Trace::default() }
}

fn ties(tied: usize, files: usize) -> Note {
    Note::new(format!(
        "{tied} functions of {files} files have the rank of another one: the program and its libraries, or several \
         programs, each count from 1, and how their orders interleave is not known"
    ))
    .with_hint("give the files of each program and each library by themselves, as directories of their own")
}

fn hash(event: &Event) -> u32 {
    match &event.location {
        Location::Name(name) => gcc_profile_id(name, None),
        Location::NameHash(NameHash::GccProfileId(id)) => *id,
        _ => 0,
    }
}

fn common_directory(parts: &[Part]) -> PathBuf {
    let Some((first, others)) = parts.split_first() else { return PathBuf::new() };
    let shared = |part: &Part| first.path.iter().zip(&part.path).take_while(|(a, b)| a == b).count();
    let length = others.iter().map(shared).min().unwrap_or(first.path.len());
    first.path.iter().take(length).collect()
}
