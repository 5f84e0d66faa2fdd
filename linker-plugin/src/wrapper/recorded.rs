//! What is known of the traces before anything is linked: which programs they are of, and a digest of all of them.
//!
//! A build links many things that no trace is of. They must not pay for reading traces, so what was found out is
//! remembered until a file changes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use rayon::prelude::*;
use reorder_base::error::Result;
use reorder_trace::{Companions, TraceFiles};
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::contents::{Digest, Stamp, digest_of_file, digest_of_parts};
use super::invocation::Invocation;
use super::options::Options;

/// What traces are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// Of the contents of all trace files and companions.
    pub(crate) digest: Digest,
    /// File names of the images that traces name.
    programs: BTreeSet<String>,
    /// Some traces do not say what they are of.
    is_for_any: bool,
}

impl Recorded {
    /// Looks into the traces that `options` name, or remembers what was seen there.
    ///
    /// # Errors
    /// Files that cannot be read, and no events at all.
    pub(crate) fn read(options: &Options, cache: Option<&Cache>) -> Result<Self> {
        let traces = TraceFiles::find(&options.traces)?;
        let files: Vec<PathBuf> =
            traces.paths().map(PathBuf::from).chain(options.companion.iter().cloned()).collect();
        let stamps: Vec<String> = files
            .iter()
            .map(|file| Ok(format!("{} {:?}", file.display(), Stamp::of(file)?)))
            .collect::<Result<_>>()?;
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        let key =
            digest_of_parts("traces", std::iter::once(version).chain(stamps.iter().map(String::as_bytes)));
        if let Some(known) = cache.and_then(|cache| cache.get::<Self>(&key)) {
            return Ok(known);
        }
        let mut programs = BTreeSet::new();
        let mut is_for_any = false;
        let name_of = |trace: reorder_trace::Trace| {
            let name = trace.image.path.as_deref().and_then(std::path::Path::file_name);
            name.map(|name| name.to_string_lossy().into_owned())
        };
        traces.read(&Companions::open(&options.companion)?, name_of, |name| match name {
            Some(name) => drop(programs.insert(name)),
            None => is_for_any = true,
        })?;
        let digests = files.par_iter().map(|file| digest_of_file(file)).collect::<Result<Vec<Digest>>>()?;
        let digest = digest_of_parts("contents", digests.iter().map(|digest| digest.0.as_bytes()));
        let recorded = Self { digest, programs, is_for_any };
        if let Some(cache) = cache {
            cache.put(&key, &recorded);
        }
        Ok(recorded)
    }

    /// Whether the traces may be of another output than the one that is linked: neither they nor `options` say.
    #[must_use]
    pub(crate) fn may_be_of_others(&self, options: &Options) -> bool {
        self.is_for_any && options.program.is_empty() && options.recorded_as.is_none()
    }

    /// Why `invocation` does not link a program of these traces, if so.
    #[must_use]
    pub(crate) fn is_unconcerned(&self, invocation: &Invocation, options: &Options) -> Option<String> {
        let program = invocation.program().unwrap_or_default();
        if !options.program.is_empty() {
            let is_wanted = options.program.contains(&program);
            return (!is_wanted).then(|| format!("{} is not to be ordered", program.display()));
        }
        let name = options.recorded_as.as_deref().unwrap_or(&program);
        let is_known = |name: &OsStr| self.programs.contains(name.to_string_lossy().as_ref());
        let is_concerned = self.is_for_any || is_known(name);
        (!is_concerned).then(|| {
            let programs: Vec<&str> = self.programs.iter().take(3).map(String::as_str).collect();
            format!(
                "the traces are of {}, not of {}; --reorder-recorded-as gives another name",
                programs.join(", "),
                name.display()
            )
        })
    }
}
