//! Images that have copies already (`apply --layout blocks`), and images with relocations that the linker kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::{Ending, Outcome, shell};
use end_to_end::workspace::{self, reorder};
use tempfile::TempDir;

use crate::runs::{LIMIT, run};

/// A program with exceptions, built with `flags`.
struct Built {
    directory: TempDir,
    image: PathBuf,
}

impl Built {
    fn new(flags: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let source = workspace::root().join("tests/copies/exceptions.cpp");
        shell(&format!("g++ -O2 -pthread {flags} '{}' -o '{}'", source.display(), image.display()), LIMIT)
            .unwrap();
        Self { directory, image }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Applies a random layout to `input`.
    fn apply(&self, input: &Path, words: &[&str], output: &str) -> Outcome {
        let mut command = reorder();
        command.arg("apply").arg(input).args(["--strategy", "random"]).args(words);
        run(command.arg("-o").arg(self.path(output)))
    }

    /// The same, whose output is there afterwards.
    fn applied(&self, input: &Path, words: &[&str], output: &str) -> PathBuf {
        let outcome = self.apply(input, words, output);
        assert!(outcome.success(), "{words:?}: {outcome}");
        self.path(output)
    }
}

fn assert_proven(old: &Path, new: &Path) {
    let verified = run(reorder().arg("verify").arg(old).arg(new));
    assert!(verified.success(), "{} {}: {verified}", old.display(), new.display());
}

fn assert_refused(outcome: &Outcome, hint: &str) {
    assert_eq!(outcome.ending, Ending::Exited(2), "{outcome}");
    let text = outcome.stderr_text();
    assert!(text.contains("(R13)") && text.contains(hint), "{outcome}");
}

// case: an image with copies gets other copies
#[test]
fn a_second_application_replaces_the_first() {
    let built = Built::new("-fPIE -pie");
    let before = run(&mut Command::new(&built.image));
    let first = built.applied(&built.image, &["--layout", "blocks", "--seed", "1"], "first");
    let layouts: [&[&str]; 4] = [
        &["--layout", "blocks", "--seed", "2"],
        &["--layout", "functions", "--seed", "2"],
        &["--layout", "both", "--seed", "2"],
        &["--clone=all", "--seed", "2"],
    ];
    for layout in layouts {
        let direct = built.applied(&built.image, layout, "direct");
        let again = built.applied(&first, layout, "again");
        assert_eq!(fs::read(&again).unwrap(), fs::read(&direct).unwrap(), "{layout:?}");
        assert_proven(&built.image, &again);
        assert_proven(&first, &again);
        assert_eq!(run(&mut Command::new(&again)), before, "{layout:?}");
    }
    let other = built.applied(&first, layouts[0], "other");
    assert_proven(&other, &first);
    assert_proven(&first, &built.image);
    let inspected = |image: &Path| {
        let outcome = run(reorder().args(["inspect", "--format", "json"]).arg(image));
        assert!(outcome.success(), "{outcome}");
        outcome.stdout_text().replace(&image.display().to_string(), "")
    };
    assert_eq!(inspected(&first), inspected(&built.image));
}

#[test]
fn copies_are_replaced_in_place() {
    let built = Built::new("-fPIE -pie -s");
    let direct = built.applied(&built.image, &["--layout", "blocks", "--seed", "2"], "direct");
    for seed in ["1", "2"] {
        let words = ["--strategy", "random", "--layout", "blocks", "--in-place", "--seed", seed];
        let outcome = run(reorder().arg("apply").arg(&built.image).args(words));
        assert!(outcome.success(), "{outcome}");
    }
    assert_eq!(fs::read(&built.image).unwrap(), fs::read(&direct).unwrap());
}

#[test]
fn copies_that_do_not_lead_back_stay() {
    let built = Built::new("-fPIE -pie");
    let first = built.applied(&built.image, &["--layout", "blocks", "--seed", "1"], "first");
    let bytes = fs::read(&first).unwrap();
    let list = {
        use object::{Object, ObjectSection};
        let file = object::File::parse(&*bytes).unwrap();
        file.section_by_name(".reorder.clones").unwrap().file_range().unwrap().0 as usize
    };
    // The length, the number of copies, the original of the first, and the last old byte.
    for place in [list + 14, list + 16, list + 24, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        fs::write(built.path("damaged"), damaged).unwrap();
        let outcome = built.apply(&built.path("damaged"), &["--layout", "blocks"], "again");
        assert_refused(&outcome, "lead back");
    }
    shell(&format!("llvm-strip$LLVM -s '{}'", first.display()), LIMIT).unwrap();
    assert_refused(&built.apply(&first, &["--layout", "blocks"], "again"), "lead back");
}

// case: copies in an image with relocations that the linker kept
#[test]
fn kept_relocations_are_left_out_on_request() {
    for flags in
        ["-fPIE -pie -Wl,--emit-relocs", "-no-pie -Wl,--emit-relocs -B/usr/lib/llvm$LLVM/bin -fuse-ld=lld"]
    {
        let built = Built::new(flags);
        let before = run(&mut Command::new(&built.image));
        let refused = built.apply(&built.image, &["--layout", "blocks"], "copies");
        assert_refused(&refused, "--drop-relocations");
        for layout in ["blocks", "both"] {
            let words = ["--layout", layout, "--seed", "1", "--drop-relocations"];
            let outcome = built.apply(&built.image, &words, "copies");
            assert!(outcome.success(), "{flags}: {outcome}");
            assert!(outcome.stderr_text().contains(".rela.text was left out"), "{outcome}");
            let copies = built.path("copies");
            let verified = run(reorder().arg("verify").arg(&built.image).arg(&copies));
            assert!(verified.success(), "{flags}: {verified}");
            assert!(
                verified.stdout_text().contains("the relocations in .rela.text were left out"),
                "{verified}"
            );
            assert_eq!(run(&mut Command::new(&copies)), before, "{flags} {layout}");
            if layout == "blocks" {
                // A second application begins with the relocations that the first left out.
                let again = built.applied(&copies, &words, "again");
                assert_eq!(fs::read(&again).unwrap(), fs::read(&copies).unwrap(), "{flags}");
            }
            let listed = shell(&format!("LC_ALL=C readelf -W -r '{}'", copies.display()), LIMIT).unwrap();
            assert!(!listed.contains(".rela.text") && !listed.contains(".rela.eh_frame"), "{listed}");
            let complaints =
                shell(&format!("LC_ALL=C readelf -W -a '{}' 2>&1 >/dev/null", copies.display()), LIMIT);
            assert_eq!(complaints.unwrap(), "", "{flags} {layout}");
            for tool in ["strip", "llvm-strip$LLVM"] {
                let line =
                    format!("{tool} -o '{1}' '{0}'", copies.display(), built.path("stripped").display());
                shell(&line, LIMIT).unwrap();
                assert_eq!(run(&mut Command::new(built.path("stripped"))), before, "{flags} {layout} {tool}");
            }
        }
    }
}
