//! The verifier against real pairs of images: two links of one program, and broken variants of them.

mod command;
mod layout;
mod mutation;
mod recover;
mod relinked;
