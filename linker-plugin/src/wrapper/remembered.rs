//! What is remembered of a link: the order, the ordered image, or why there is none.
//!
//! Files are named by their contents, so that two links at a time that share a key cannot mix up their parts, and an image
//! is compared with its digest before it is delivered.

use std::path::Path;

use reorder_base::error::ErrorKind;
use serde::{Deserialize, Serialize};

use super::addition::{Addition, Form};
use super::cache::Cache;
use super::contents::{Digest, digest_of, digest_of_file};
use super::inputs::{Input, are_same, inputs_of};
use super::invocation::Invocation;
use super::link::Failure;
use super::report::LinkReport;
use super::talk::hint_of;
use super::workplace::Workplace;

/// The result of a link.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Remembered {
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
    /// No order was possible.
    NotOrdered {
        /// Why.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// The traces may be of something else.
        is_unfit: bool,
    },
}

#[derive(Serialize, Deserialize)]
struct Entry {
    inputs: Vec<Input>,
    remembered: Remembered,
}

/// The place of one link in the cache.
#[derive(Debug)]
pub(crate) struct Memory<'call> {
    cache: Option<&'call Cache>,
    key: Digest,
    /// Inputs that must be unchanged; `None` where the key covers them.
    invocation: Option<&'call Invocation>,
}

impl<'call> Memory<'call> {
    /// The place of a link whose inputs are compared; without a cache no link is remembered.
    #[must_use]
    pub(crate) fn of_link(cache: Option<&'call Cache>, key: Digest, invocation: &'call Invocation) -> Self {
        Self { cache, key, invocation: Some(invocation) }
    }

    /// The place of a finished image, whose contents are part of the key.
    #[must_use]
    pub(crate) fn of_image(cache: Option<&'call Cache>, key: Digest) -> Self {
        Self { cache, key, invocation: None }
    }

    /// The result of the same link with the same inputs.
    #[must_use]
    pub(crate) fn recall(&self) -> Option<Remembered> {
        let entry: Entry = self.cache?.get(&self.key)?;
        let is_same = self.invocation.is_none_or(|invocation| are_same(&entry.inputs, invocation));
        is_same.then_some(entry.remembered)
    }

    /// The files of a remembered order.
    #[must_use]
    pub(crate) fn additions(&self, files: &[(Form, Digest)]) -> Option<Vec<Addition>> {
        let addition = |(form, digest): &(Form, Digest)| {
            let contents = std::fs::read(self.cache?.attachment(digest)).ok()?;
            (digest_of(&contents) == *digest).then_some(Addition { form: *form, contents })
        };
        files.iter().map(addition).collect()
    }

    /// The file of a remembered image, if it is unchanged.
    #[must_use]
    pub(crate) fn image(&self, image: &Digest) -> Option<std::path::PathBuf> {
        let file = self.cache?.attachment(image);
        digest_of_file(&file).is_ok_and(|digest| digest == *image).then_some(file)
    }

    /// What the link depends on, as far as it is not part of the key; read only where something is remembered.
    #[must_use]
    pub(crate) fn inputs(&self) -> Option<Vec<Input>> {
        self.cache?;
        self.invocation.map_or_else(|| Some(Vec::new()), inputs_of)
    }

    /// Remembers an order.
    pub(crate) fn remember_order(
        &self,
        inputs: Option<Vec<Input>>,
        additions: &[Addition],
        report: &LinkReport,
    ) {
        let attach = |addition: &Addition| Some((addition.form, self.cache?.attach(&addition.contents)?));
        let additions: Option<Vec<_>> = additions.iter().map(attach).collect();
        if let Some(additions) = additions {
            self.remember(inputs, Remembered::Order { additions, report: report.clone() });
        }
    }

    /// Remembers an ordered image.
    pub(crate) fn remember_image(&self, image: &[u8], report: &LinkReport) {
        if let Some(image) = self.cache.and_then(|cache| cache.attach(image)) {
            self.remember(self.inputs(), Remembered::Image { image, report: report.clone() });
        }
    }

    /// Remembers that no order was possible; not errors of the system, which may not happen again.
    pub(crate) fn remember_failure(&self, inputs: Option<Vec<Input>>, failure: &Failure, place: &Workplace) {
        let (error, is_unfit) = match failure {
            Failure::Unfit(error) => (error, true),
            Failure::NotOrdered(error) if !matches!(error.kind, ErrorKind::Io(_)) => (error, false),
            _ => return,
        };
        let message = place.spelled(error.to_string().as_bytes(), Path::new("the link"));
        let message = String::from_utf8_lossy(&message).into_owned();
        self.remember(inputs, Remembered::NotOrdered { message, hint: hint_of(error), is_unfit });
    }

    fn remember(&self, inputs: Option<Vec<Input>>, remembered: Remembered) {
        if let (Some(cache), Some(inputs)) = (self.cache, inputs) {
            cache.put(&self.key, &Entry { inputs, remembered });
            cache.prune();
        }
    }
}
