//! The verifier against real pairs of images: links of one program in two orders, and broken variants of them.

mod aarch64;
mod command;
mod layout;
mod mutation;
mod pairs;
mod parity;
mod proof;
mod recover;
mod relinked;
mod sorted_rust;
