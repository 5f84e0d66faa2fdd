//! Every fixture with every toolchain: build, run, relocate, run again, compare.

fn main() {}
