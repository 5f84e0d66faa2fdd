//! Mach-O images: relocated, run in the emulator, and compared with what other tools make of them.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod commands;
mod emulated;
mod limits;
mod oracle;
mod order_files;
mod signatures;
mod tables;
mod tools;
mod verify;
mod verify_refusals;
