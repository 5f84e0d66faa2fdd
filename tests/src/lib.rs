//! Shared helpers of the end-to-end tests: real compilers, real linkers, real programs.
//!
//! | module | what it is for |
//! |---|---|
//! | `process` | runs one program with a time limit and keeps its output |
//! | `early_readers` | finds pipelines that fail only on some runs |
//! | `profiles` | profiles made by real tools, and the orders that they hold |
//! | `recorded_programs` | compiles and records small programs |
//! | `namesakes` | a program with functions of equal names in several objects and archive members |
//! | `workspace` | builds and finds the `reorder` command under test |
//! | `fixture` | reads the directives at the top of a fixture's source |
//! | `inspection` | reads pinned functions from `reorder inspect` |
//! | `distribution` | permutes installed programs and compares what they print |
//! | `works` | gives installed programs files of many kinds, and compares what they make of them |
//! | `macho_tools` | the emulator and the comparison of Mach-O images, and where they are installed |
//! | `macho_fixtures` | compiles and links the Mach-O fixtures |
//! | `macho_pairs` | links the same objects in two orders, for `verify` |
//! | `macho_oracle` | links in a shuffled order and relocates the first link by it |
//! | `stage` | a scratch place for an installed program and its permuted copy |
//! | `invocations` | lists of invocations of real programs |
//! | `agreement` | compares the order of a profile with a recorded one |
//! | `inlining` | which functions contain copies of which, by debug information |
//! | `breakpoints` | asks gdb which addresses a run executes |
//! | `layout_corpus` | a program of `scripts/layout/corpus` with its traces |
//! | `layout_names` | what profiles call the functions of an image |
//! | `layout_positions` | where a second link of the same objects put each function |
//! | `layout_simulated` | where a link would put each function for a given order |
//! | `layout_scores` | faults and bounds of a layout, summed over runs |
//! | `layout_report` | scores of many layouts side by side |
//! | `layout_summary` | layouts against a baseline, over many programs |
//! | `layout_profile` | traces as a profile that lld and llvm-profdata read |
//! | `gate_project` | a repository whose startup the gate watches |
//! | `gate_validators` | third-party programs that check reports, schemas and recipes |
//! | `linker_wrapper` | finds `reorder-ld` and runs builds with and without it |
//! | `llvm_profiles` | builds instrumented programs and asks LLVM's tools about their profiles |
//! | `llvm_tools` | asks LLVM's tools for an order |
//! | `synthetic` | programs of any size with recorded runs |
//! | `mutation` | damages ELF images reproducibly |
//! | `mutation_table` | makes correct outputs wrong and counts what the verifier reports |
//! | `wrong_copies` | correct outputs with copies, with one error |
//! | `wrong_output` | correct outputs with one error |
//! | `unwind_padding` | bytes of unwind entries that say nothing |
//! | `fuzz` | what every input must satisfy, target by target |
//! | `fixture_run` | builds, runs, relocates and compares one variant of a fixture |

pub mod agreement;
pub mod breakpoints;
mod change;
pub mod distribution;
pub mod documents;
pub mod early_readers;
pub mod fixture;
pub mod fixture_run;
pub mod fuzz;
pub mod gate_project;
pub mod gate_validators;
pub mod inlining;
pub mod inspection;
pub mod invocations;
pub mod layout_corpus;
pub mod layout_names;
pub mod layout_positions;
pub mod layout_profile;
pub mod layout_report;
pub mod layout_scores;
pub mod layout_simulated;
pub mod layout_summary;
pub mod linker_wrapper;
pub mod llvm_profiles;
pub mod llvm_tools;
pub mod macho_fixtures;
pub mod macho_oracle;
pub mod macho_pairs;
pub mod macho_tools;
pub mod mutation;
pub mod mutation_table;
pub mod namesakes;
pub mod plugin_links;
pub mod process;
pub mod profiles;
mod random;
pub mod recorded_programs;
pub mod stage;
pub mod synthetic;
pub mod unwind_padding;
pub mod works;
pub mod workspace;
pub mod wrong_copies;
pub mod wrong_output;
