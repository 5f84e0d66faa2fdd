//! stub
use super::blocks::Partition;
use super::{CodeFacts, ImageFacts, other_machine};
use crate::error::Result;
pub(super) fn code_facts(_image: &ImageFacts<'_, '_>, _partition: &mut Partition) -> Result<CodeFacts> {
    Err(other_machine())
}
