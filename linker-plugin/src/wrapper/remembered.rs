//! What is remembered of a link: the order, the ordered image, or why there is none.
//!
//! Files are named by their contents, so that two links at a time that share a key cannot mix up their parts, and an image
//! is compared with its digest before it is delivered.

use reorder::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::addition::{Addition, Form};
use super::cache::Cache;
use super::contents::{Digest, digest_of_file};
use super::inputs::{Input, are_same, inputs_of};
use super::invocation::Invocation;
use super::report::LinkReport;

/// What came of a link.
#[derive(Debug, Serialize, Deserialize)]
pub enum Remembered {
    /// The linker was given these files.
    Order {
        /// Their forms and contents.
        additions: Vec<(Form, Digest)>,
        /// The account.
        report: LinkReport,
    },
    /// The finished image was changed.
    Image {
        /// Its contents.
        image: Digest,
        /// The account.
        report: LinkReport,
    },
    /// There was no order to be had.
    NotOrdered {
        /// Why.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl Remembered {
    /// A failure, unless it is the system's: another time it may not happen.
    #[must_use]
    pub fn failure(error: &Error) -> Option<Self> {
        let is_lasting = !matches!(error.kind, ErrorKind::Io(_));
        is_lasting.then(|| Self::NotOrdered { message: error.to_string(), hint: error.hint.clone() })
    }
}

#[derive(Serialize, Deserialize)]
struct Entry {
    inputs: Vec<Input>,
    remembered: Remembered,
}

/// The place of one link in the cache.
#[derive(Debug)]
pub struct Memory<'call> {
    cache: Option<&'call Cache>,
    key: Digest,
    invocation: &'call Invocation,
}

impl<'call> Memory<'call> {
    /// The place called `key`; without a cache nothing is remembered.
    #[must_use]
    pub fn new(cache: Option<&'call Cache>, key: Digest, invocation: &'call Invocation) -> Self {
        Self { cache, key, invocation }
    }

    /// What came of the same link with the same inputs.
    #[must_use]
    pub fn recall(&self) -> Option<Remembered> {
        let entry: Entry = self.cache?.get(&self.key)?;
        are_same(&entry.inputs, self.invocation).then_some(entry.remembered)
    }

    /// The files of a remembered order.
    #[must_use]
    pub fn additions(&self, files: &[(Form, Digest)]) -> Option<Vec<Addition>> {
        let addition = |(form, digest): &(Form, Digest)| {
            let contents = std::fs::read(self.cache?.attachment(digest)).ok()?;
            Some(Addition { form: *form, contents })
        };
        files.iter().map(addition).collect()
    }

    /// The file of a remembered image, if it is what it was.
    #[must_use]
    pub fn image(&self, image: &Digest) -> Option<std::path::PathBuf> {
        let file = self.cache?.attachment(image);
        digest_of_file(&file).is_ok_and(|digest| digest == *image).then_some(file)
    }

    /// What the link depends on; read only where something is remembered.
    #[must_use]
    pub fn inputs(&self) -> Option<Vec<Input>> {
        self.cache.and_then(|_| inputs_of(self.invocation))
    }

    /// Remembers an order.
    pub fn remember_order(&self, inputs: Option<Vec<Input>>, additions: &[Addition], report: &LinkReport) {
        let attach = |addition: &Addition| Some((addition.form, self.cache?.attach(&addition.contents)?));
        let additions: Option<Vec<_>> = additions.iter().map(attach).collect();
        if let Some(additions) = additions {
            self.remember(inputs, Remembered::Order { additions, report: report.clone() });
        }
    }

    /// Remembers an ordered image.
    pub fn remember_image(&self, inputs: Option<Vec<Input>>, image: &[u8], report: &LinkReport) {
        if let Some(image) = self.cache.and_then(|cache| cache.attach(image)) {
            self.remember(inputs, Remembered::Image { image, report: report.clone() });
        }
    }

    /// Remembers that there was no order to be had.
    pub fn remember_failure(&self, inputs: Option<Vec<Input>>, error: &Error) {
        if let Some(failure) = Remembered::failure(error) {
            self.remember(inputs, failure);
        }
    }

    fn remember(&self, inputs: Option<Vec<Input>>, remembered: Remembered) {
        if let (Some(cache), Some(inputs)) = (self.cache, inputs) {
            cache.put(&self.key, &Entry { inputs, remembered });
            cache.prune();
        }
    }
}
