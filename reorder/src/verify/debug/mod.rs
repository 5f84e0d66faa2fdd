//! Debug information that was brought up to date: the file behind its loaded part, and what the units say.

pub(super) mod layout;
