//! Order files for Apple's linkers from Mach-O images, tested with ld64.lld.

use std::time::Duration;

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace;
use reorder_image::macho::MachOImage;
use reorder_trace::link_map::LinkMap;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

const MAIN: &str = "\
int other(int), third(int);\n\
__attribute__((noinline)) static int helper(int n) { return n + 3; }\n\
__attribute__((noinline)) int alpha(int n) { return n * 7; }\n\
int main(int n, char **words) { return other(n) + helper(n) + alpha(n) + third(n) + !words; }\n";
const SECOND: &str = "\
__attribute__((noinline)) static int helper(int n) { return n * 5; }\n\
int other(int n) { return helper(n) + 1; }\n";
const THIRD: &str = "\
__attribute__((noinline)) static int helper(int n) { return n * 11; }\n\
int third(int n) { return helper(n) + 2; }\n";

struct Case {
    directory: TempDir,
    architecture: &'static str,
}

impl Case {
    fn new(architecture: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, source) in [("main.c", MAIN), ("second.c", SECOND), ("third.c", THIRD)] {
            std::fs::write(directory.path().join(name), source).unwrap();
        }
        let case = Self { directory, architecture };
        case.run(&format!(
            "for unit in main second third; do clang$LLVM --target={architecture}-apple-macos12 -g -O1 -c $unit.c -o $unit.o; \
             done && rm -f libpair.a && llvm-ar$LLVM rcs libpair.a second.o third.o"
        ));
        case.link("image", "");
        case
    }

    fn run(&self, line: &str) -> String {
        shell(&format!("cd '{}' && {line}", self.directory.path().display()), LIMIT).unwrap()
    }

    fn link(&self, name: &str, flags: &str) {
        let architecture = self.architecture;
        self.run(&format!(
            "ld64.lld$LLVM -arch {architecture} -platform_version macos 12 12 -undefined dynamic_lookup {flags} \
             main.o libpair.a -o {name} -map {name}.map"
        ));
    }

    /// Object and symbol of all code, in the order of the link.
    fn order_of(&self, name: &str) -> Vec<String> {
        let bytes = std::fs::read(self.directory.path().join(format!("{name}.map"))).unwrap();
        let map = LinkMap::parse(&bytes).unwrap();
        let code = map.sections.iter().filter(|section| section.output == b"__TEXT,__text");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        code.map(|section| format!("{}:{}", text(section.object), text(section.name))).collect()
    }

    fn order(&self, image: &str, traces: &str, flags: &[&str]) -> Outcome {
        std::fs::write(self.directory.path().join("traces"), traces).unwrap();
        let mut command = workspace::reorder();
        command.current_dir(self.directory.path()).args([
            "order",
            image,
            "--strategy",
            "first-seen",
            "-t",
            "traces",
        ]);
        command.args(flags);
        process::run(&mut command, LIMIT).unwrap()
    }

    /// Orders the image by `traces` and links it again; gives the order file and the code's new order.
    fn ordered(&self, traces: &str, flags: &[&str]) -> (String, Vec<String>) {
        let outcome = self.order("image", traces, flags);
        assert!(outcome.success(), "{outcome}");
        std::fs::write(self.directory.path().join("order"), &outcome.stdout).unwrap();
        self.link("ordered", "-order_file order");
        (outcome.stdout_text(), self.order_of("ordered"))
    }
}

/// Lines that are not comments.
fn body(order: &str) -> Vec<&str> {
    order.lines().filter(|line| !line.starts_with('#')).collect()
}

const WANTED: [&str; 5] = [
    "libpair.a(third.o):_helper",
    "main.o:_alpha",
    "libpair.a(second.o):_helper",
    "main.o:_main",
    "libpair.a(third.o):_third",
];
const LINES: [&str; 5] =
    ["libpair.a(third.o):_helper", "_alpha", "libpair.a(second.o):_helper", "_main", "_third"];

#[test]
fn lists_of_either_spelling_become_the_order_of_the_link() {
    for architecture in ["arm64", "x86_64"] {
        let case = Case::new(architecture);
        let bare = "third.c;helper\nalpha\nsecond.c;helper\nmain\nthird\n";
        let (order, got) = case.ordered(bare, &[]);
        assert_eq!(body(&order), LINES);
        assert_eq!(got[..5], WANTED);
        assert!(order.starts_with("# Order file for Apple's linkers"), "{order}");
        let (order, _) = case.ordered("_alpha\n_main\n_third\n", &[]);
        assert_eq!(body(&order), ["_alpha", "_main", "_third"]);
        let bytes = std::fs::read(case.directory.path().join("image")).unwrap();
        let image = MachOImage::parse(&bytes, None).unwrap();
        assert_eq!((image.architecture, image.names.functions().len()), (architecture, 7));
        let uuid: String = image.uuid.unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let (order, _) = case.ordered(bare, &["--linker", "ld64", "--arch-prefix"]);
        assert!(order.contains(&format!("# uuid {uuid}\n")), "{order}");
        assert!(body(&order).iter().all(|line| line.starts_with(&format!("{architecture}:"))), "{order}");
    }
}

#[test]
fn profiles_and_link_maps_resolve() {
    let case = Case::new("arm64");
    let record =
        |name: &str| format!("{name}\n# Func Hash:\n1\n# Num Counters:\n1\n# Counter Values:\n1\n\n");
    let names = ["third.c;helper", "alpha", "second.c;helper", "main", "third"];
    let text = format!(
        ":ir\n:temporal_prof_traces\n# Num Temporal Profile Traces:\n1\n# Temporal Profile Trace Stream Size:\n1\n# Weight:\n1\n{},\n{}",
        names.join(","),
        names.map(record).concat()
    );
    let (order, got) = case.ordered(&text, &[]);
    assert_eq!((body(&order), &got[..5]), (LINES.to_vec(), &WANTED.map(str::to_owned)[..]));
    // The map of a link in that order, as a trace of the first image.
    let map = std::fs::read_to_string(case.directory.path().join("image.map")).unwrap();
    let (order, _) = case.ordered(&map, &[]);
    assert_eq!(body(&order).len(), 7, "{order}");
}

#[test]
fn a_link_map_names_what_was_stripped() {
    let case = Case::new("arm64");
    let list = "third\nalpha\nmain\n";
    case.run("llvm-strip$LLVM --strip-debug image -o bare");
    let outcome = case.order("bare", list, &["--link-map", "image.map"]);
    assert!(outcome.success(), "{outcome}");
    assert_eq!(body(&outcome.stdout_text()), ["_third", "_alpha", "_main"]);
    let outcome = case.order("image", list, &["--linker", "gold"]);
    assert!(!outcome.success() && outcome.stderr_text().contains("ld64"), "{outcome}");
}

#[test]
fn one_image_of_a_universal_file_is_chosen() {
    let (arm, intel) = (Case::new("arm64"), Case::new("x86_64"));
    let other = intel.directory.path().join("image");
    arm.run(&format!("llvm-lipo$LLVM -create image '{}' -output both", other.display()));
    let outcome = arm.order("both", "main\n", &[]);
    assert!(!outcome.success() && outcome.stderr_text().contains("--arch"), "{outcome}");
    for architecture in ["arm64", "x86_64"] {
        let outcome = arm.order("both", "main\n", &["--arch", architecture, "--arch-prefix"]);
        assert_eq!(body(&outcome.stdout_text()), [format!("{architecture}:_main")], "{outcome}");
    }
    let outcome = arm.order("both", "main\n", &["--arch", "arm64e"]);
    assert!(!outcome.success() && outcome.stderr_text().contains("x86_64"), "{outcome}");
}
