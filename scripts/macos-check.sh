#!/usr/bin/env bash
# Tests on a Mac what cannot be tested elsewhere: whether the kernel, dyld, codesign and the debugging tools accept
# programs whose functions `reorder apply` has moved.
#
#   scripts/macos-check.sh [IMAGE…]                 all steps, if reorder runs on this system
#   scripts/macos-check.sh --make DIR [IMAGE…]      on the Mac: builds small programs with its compilers
#   scripts/macos-check.sh --move DIR               anywhere: moves the functions of all programs in DIR at random
#   scripts/macos-check.sh --try DIR                on the Mac: checks, runs and compares
#
# reorder runs on x86-64 Linux, so on most Macs the three steps are needed: make, copy DIR to a Linux system or share
# it with a container, move, copy it back to the same path, try.
#
#   IMAGE            a further program, which is run with --version; or a library, which is loaded
#   --reorder FILE   this command instead of one that is built from this checkout
#   --seeds LIST     the orders to try, as numbers separated by blanks; default 1 2 3
#   --arguments ARG  one argument to run each IMAGE with instead of --version
#   --keep           keep the temporary directory
#
# Prints a line for each check: PASS, FAIL or SKIP. Exit status: 0 no check failed, 1 a check failed, 2 it could not run.
# Needs no root and changes no files outside of DIR. For the bash 3.2 of macOS.
set -uo pipefail

fail_to_run() {
    echo "macos-check: $1" >&2
    exit 2
}

step=all
directory=
reorder=
seeds="1 2 3"
arguments=--version
keep=
images=()
while [ $# -gt 0 ]; do
    case $1 in
    --make | --move | --try)
        [ $# -ge 2 ] || fail_to_run "$1 needs a directory"
        step=${1#--}
        directory=$2
        shift
        ;;
    --reorder | --seeds | --arguments)
        [ $# -ge 2 ] || fail_to_run "$1 needs a value"
        case $1 in
        --reorder) reorder=$2 ;;
        --seeds) seeds=$2 ;;
        *) arguments=$2 ;;
        esac
        shift
        ;;
    --keep) keep=yes ;;
    -h | --help)
        sed -n '2,/^set -uo/{/^#/!d;s/^# \{0,1\}//;p;}' "$0"
        exit 0
        ;;
    -*) fail_to_run "$1 is unknown; see --help" ;;
    *)
        [ -f "$1" ] || fail_to_run "$1 is no file"
        images+=("$1")
        ;;
    esac
    shift
done

root=$(cd "$(dirname "$0")/.." && pwd) || exit 2
system=$(uname -s)
if [ "$step" = all ]; then
    directory=$(mktemp -d "${TMPDIR:-/tmp}/reorder-macos-check.XXXXXX") || exit 2
    if [ -z "$keep" ]; then
        trap 'rm -rf "$directory"' EXIT
    else
        echo "keeping $directory"
    fi
fi
mkdir -p "$directory/cases" || exit 2
directory=$(cd "$directory" && pwd) || exit 2
log=$directory/log
passed=0
failed=0
skipped=0

pass() {
    passed=$((passed + 1))
    echo "PASS  $1"
}
fail() {
    failed=$((failed + 1))
    echo "FAIL  $1"
    [ $# -lt 2 ] || sed -n '1,12s/^/      /p' "$2"
}
skip() {
    skipped=$((skipped + 1))
    echo "SKIP  $1"
}
# check NAME COMMAND…: passes if the command does.
check() {
    local name=$1
    shift
    if "$@" >"$log" 2>&1; then pass "$name"; else fail "$name" "$log"; fi
}
has() { command -v "$1" >/dev/null 2>&1; }
# Runs a command for a minute at most.
limited() { perl -e 'alarm shift; exec @ARGV or exit 127' 60 "$@"; }

# --- make: programs with the system's compilers ---------------------------------------------------------------------

# A case is a directory: old/ with the images, `images` with their names, `arguments` with the arguments of old/program.
begin_case() {
    rm -rf "$directory/cases/$1"
    mkdir -p "$directory/cases/$1/old" "$directory/cases/$1/objects"
    cd "$directory/cases/$1" || exit 2
}
# end_case NAME STATUS ARGUMENTS IMAGE…
end_case() {
    local name=$1 status=$2 words=$3
    shift 3
    cd "$directory" || exit 2
    if [ "$status" != 0 ]; then
        fail "$name: ready" "$log"
        rm -rf "$directory/cases/$name"
        return
    fi
    printf '%s\n' "$words" >"cases/$name/arguments"
    printf '%s\n' "$@" >"cases/$name/images"
    pass "$name: ready"
}

write_sources() {
    mkdir -p "$directory/sources"
    cd "$directory/sources" || exit 2
    # Thirty functions for each program, so that orders can differ.
    {
        for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
            echo "__attribute__((noinline)) static int step_$number(int value) { return value * $number + ($number ^ value); }"
        done
        echo 'static int (*const steps[])(int) = {'
        for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
            echo "    step_$number,"
        done
        echo '};'
    } >steps.h
    cat >library.c <<'SOURCE'
#include "steps.h"
int library_sum(int value) {
    for (unsigned long at = 0; at < sizeof steps / sizeof *steps; ++at) value ^= steps[at](value);
    return value;
}
__attribute__((noinline)) const char *library_name(int value) {
    switch (value) {
    case 0: return "none";
    case 1: return "one";
    case 2: return "two";
    case 3: return "three";
    case 4: return "four";
    case 5: return "five";
    default: return "many";
    }
}
SOURCE
    cat >program.c <<'SOURCE'
#include "steps.h"
#include <execinfo.h>
#include <mach-o/dyld.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int library_sum(int);
const char *library_name(int);
__attribute__((constructor)) static void first_of_all(void) { puts("constructor"); }
static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }
__attribute__((noinline)) static int innermost(void) {
    void *frames[16];
    int count = backtrace(frames, 16);
    printf("%#lx", (unsigned long)(uintptr_t)_dyld_get_image_header(0));
    for (int at = 1; at < count; ++at) printf(" %#lx", (unsigned long)(uintptr_t)frames[at] - 1);
    puts("");
    return count;
}
__attribute__((noinline)) static int middle(void) { return innermost() + 1; }
__attribute__((noinline)) static int outermost(void) { return middle() + 1; }
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "backtrace")) return outermost() == 0;
    int values[sizeof steps / sizeof *steps];
    for (unsigned long at = 0; at < sizeof steps / sizeof *steps; ++at) values[at] = steps[at](count + (int)at) % 1009;
    qsort(values, sizeof values / sizeof *values, sizeof *values, compare);
    for (unsigned long at = 0; at < sizeof steps / sizeof *steps; ++at) printf("%d %s\n", values[at], library_name((int)at % 7));
    printf("%d\n", library_sum(count));
    return 0;
}
SOURCE
    cat >library.cpp <<'SOURCE'
#include <stdexcept>
#include <string>
#include "steps.h"
struct Guard {
    std::string *trace;
    ~Guard() { *trace += '.'; }
};
__attribute__((noinline)) static int deepest(int value) {
    if (value % 3 == 0) throw std::runtime_error("three");
    if (value % 3 == 1) throw value;
    return steps[value % 30](value);
}
__attribute__((noinline)) int library_try(int value, std::string *trace) {
    Guard guard{trace};
    try {
        return deepest(value);
    } catch (int number) {
        *trace += 'i';
        return number;
    }
}
SOURCE
    cat >program.cpp <<'SOURCE'
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "steps.h"
int library_try(int, std::string *);
struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};
struct Square : Shape {
    int side;
    explicit Square(int size) : side(size) {}
    int area() const override { return side * side; }
};
struct Line : Shape {
    int area() const override { return 0; }
};
int main() {
    std::map<std::string, int> counts;
    for (int value = 0; value < 30; ++value) {
        std::string trace;
        try {
            counts[std::to_string(library_try(value, &trace))] += steps[value](value) % 7;
        } catch (const std::runtime_error &error) {
            trace += error.what();
        }
        std::cout << value << ' ' << trace << '\n';
    }
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.push_back(std::make_unique<Square>(5));
    shapes.push_back(std::make_unique<Line>());
    for (const auto &shape : shapes) std::cout << shape->area() << '\n';
    for (const auto &count : counts) std::cout << count.first << '=' << count.second << '\n';
}
SOURCE
    cat >program.m <<'SOURCE'
#import <Foundation/Foundation.h>
@protocol Speaker
- (NSString *)speak:(int)times;
@end
@interface Animal : NSObject <Speaker>
@property(copy) NSString *name;
@end
@implementation Animal
+ (void)load { puts("load"); }
- (NSString *)speak:(int)times { return [NSString stringWithFormat:@"%@ %d", self.name, times]; }
@end
@interface Dog : Animal
@end
@implementation Dog
- (NSString *)speak:(int)times { return [[super speak:times] stringByAppendingString:@" dog"]; }
@end
@interface NSString (Doubled)
- (NSString *)doubled;
@end
@implementation NSString (Doubled)
- (NSString *)doubled { return [self stringByAppendingString:self]; }
@end
int main(void) {
    @autoreleasepool {
        for (int times = 0; times < 3; ++times) {
            Animal *animal = times % 2 ? [Dog new] : [Animal new];
            animal.name = [@"a" doubled];
            NSString * (^block)(int) = ^(int more) { return [animal speak:times + more]; };
            printf("%s %d\n", block(1).UTF8String, [animal respondsToSelector:@selector(speak:)]);
        }
        @try {
            [NSException raise:@"Thrown" format:@"on purpose"];
        } @catch (NSException *exception) {
            puts(exception.name.UTF8String);
        } @finally {
            puts("finally");
        }
    }
    return 0;
}
SOURCE
    cat >main.swift <<'SOURCE'
protocol Shape { var area: Int { get } }
struct Square: Shape { let side: Int; var area: Int { side * side } }
final class Circle: Shape { let radius: Int; init(_ radius: Int) { self.radius = radius }; var area: Int { 3 * radius * radius } }
enum Failure: Error { case negative(Int) }
func checked<Number: BinaryInteger>(_ value: Number) throws -> Number {
    if value < 0 { throw Failure.negative(Int(value)) }
    return value * 2
}
let shapes: [any Shape] = [Square(side: 2), Circle(3), Square(side: 4)]
print(shapes.map { $0.area }.sorted(by: >))
for value in [1, -1] {
    do { print(try checked(value)) } catch { print("\(error)") }
}
print(Dictionary(grouping: 1...9, by: { $0 % 3 }).mapValues { $0.reduce(0, +) }.sorted { $0.key < $1.key })
SOURCE
    cat >program.rs <<'SOURCE'
use std::collections::BTreeMap;
trait Shape { fn area(&self) -> u32; }
struct Square(u32);
struct Line;
impl Shape for Square { fn area(&self) -> u32 { self.0 * self.0 } }
impl Shape for Line { fn area(&self) -> u32 { 0 } }
fn main() {
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(3)), Box::new(Line)];
    println!("{:?}", shapes.iter().map(|shape| shape.area()).collect::<Vec<_>>());
    let caught = std::panic::catch_unwind(|| if std::env::args().count() > 0 { panic!("on purpose") });
    println!("{}", caught.is_err());
    let handle = std::thread::spawn(|| (0..9).map(|number| (number % 3, number)).collect::<BTreeMap<_, _>>());
    println!("{:?}", handle.join().unwrap());
}
SOURCE
    cat >loader.c <<'SOURCE'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *handle = count > 1 ? dlopen(words[1], RTLD_NOW) : 0;
    if (!handle) fprintf(stderr, "%s\n", dlerror());
    puts(handle ? "loaded" : "not loaded");
    return !handle;
}
SOURCE
}

# build NAME c|cpp FLAG…: a library, and a program that uses it; both with debug information.
build() {
    local name=$1 extension=$2 compiler=clang
    shift 2
    [ "$extension" = c ] || compiler=clang++
    begin_case "$name"
    {
        "$compiler" -g -O1 "$@" -c "$directory/sources/library.$extension" -o objects/library.o &&
            "$compiler" -g -O1 "$@" -c "$directory/sources/program.$extension" -o objects/program.o &&
            "$compiler" "$@" -dynamiclib -install_name @rpath/libwork.dylib objects/library.o -o old/libwork.dylib &&
            "$compiler" "$@" -Wl,-rpath,@loader_path objects/program.o old/libwork.dylib -o old/program
    } >"$log" 2>&1
    end_case "$name" $? "" program libwork.dylib
}

make_cases() {
    if [ "$system" = Darwin ]; then
        has clang || fail_to_run "clang is missing: install Apple's command line tools (xcode-select --install)"
        write_sources
        clang "$directory/sources/loader.c" -o "$directory/loader" >"$log" 2>&1 || fail "loader: built" "$log"
        build c c
        build c-opcodes c -mmacosx-version-min=11.0
        build cxx cpp -std=c++17
        build cxx-opcodes cpp -std=c++17 -mmacosx-version-min=11.0
        build cxx-x86_64 cpp -std=c++17 -arch x86_64
        build cxx-universal cpp -std=c++17 -arch arm64 -arch x86_64
        begin_case objc
        clang -g -O1 -fobjc-arc -framework Foundation "$directory/sources/program.m" -o old/program >"$log" 2>&1
        end_case objc $? "" program
        if has swiftc; then
            begin_case swift
            swiftc -O "$directory/sources/main.swift" -o old/program >"$log" 2>&1
            end_case swift $? "" program
        else
            skip "swift: there is no swiftc"
        fi
        if has rustc; then
            begin_case rust
            rustc -O --edition 2021 "$directory/sources/program.rs" -o old/program >"$log" 2>&1
            end_case rust $? "" program
        else
            skip "rust: there is no rustc"
        fi
    else
        echo "this is no Mac: nothing is built, only images that were given are taken"
    fi
    local number=0 image name
    for image in ${images[@]+"${images[@]}"}; do
        number=$((number + 1))
        name=given-$number-$(basename "$image")
        case $image in /*) ;; *) image=$start/$image ;; esac
        begin_case "$name"
        cp "$image" old/program >"$log" 2>&1
        end_case "$name" $? "$arguments" program
        : >"$directory/cases/$name/given"
    done
}

# --- move: with reorder ---------------------------------------------------------------------------------------------

move_cases() {
    if [ -z "$reorder" ]; then
        has cargo || fail_to_run "there is neither --reorder FILE nor cargo"
        (cd "$root" && cargo build --release --locked --quiet -p reorder-functions) ||
            fail_to_run "reorder cannot be built here; use --make, --move on x86-64 Linux, and --try (see --help)"
        reorder=${CARGO_TARGET_DIR:-$root/target}/release/reorder
    fi
    "$reorder" --version >/dev/null 2>&1 || fail_to_run "$reorder does not run here; see --help"
    local path name seed image new
    for path in "$directory"/cases/*/; do
        path=${path%/}
        [ -f "$path/images" ] || continue
        name=$(basename "$path")
        for seed in $seeds; do
            new=$path/new.$seed
            rm -rf "$new"
            mkdir -p "$new"
            while IFS= read -r image; do
                move_image "$name, seed $seed, $image" "$path/old/$image" "$new/$image" "$seed" </dev/null
            done <"$path/images"
        done
    done
}

# move_image NAME OLD NEW SEED
move_image() {
    if ! "$reorder" apply "$2" --strategy random --seed "$4" -o "$3" --map "$3.map" >"$log" 2>&1; then
        if grep -q 'refused (M' "$log" && ! grep -q 'refused (M20)' "$log"; then
            skip "$1: $(grep -m 1 'refused (M' "$log")"
        else
            fail "$1: moved" "$log"
        fi
        rm -f "$3"
        return
    fi
    if grep -q 'refused (M20)' "$log"; then fail "$1: moved" "$log"; else pass "$1: moved"; fi
    check "$1: proven" "$reorder" verify "$2" "$3"
    # Each image of a universal file has a map of its own.
    ! is_universal "$2" || return
    if "$reorder" apply "$3" --order "$3.map" -o "$3.back" >"$log" 2>&1 && cmp "$2" "$3.back" >>"$log" 2>&1; then
        pass "$1: the map leads back"
    else
        fail "$1: the map leads back" "$log"
    fi
    rm -f "$3.back"
}

# --- try: with the Mac's own tools ------------------------------------------------------------------------------------

# run OUTPUT DIRECTORY WORD…: stdout and exit status.
run() {
    local output=$1 place=$2 status
    shift 2
    (cd "$place" && limited "$@" 2>"$output.errors" </dev/null) >"$output"
    status=$?
    echo "status $status" >>"$output"
}

try_cases() {
    [ "$system" = Darwin ] || fail_to_run "--try needs a Mac: it asks its kernel, dyld and codesign"
    sw_vers
    uname -m
    local path name seed new found=
    for path in "$directory"/cases/*/; do
        path=${path%/}
        [ -f "$path/images" ] || continue
        name=$(basename "$path")
        run_old "$path"
        for seed in $seeds; do
            new=$path/new.$seed
            [ -d "$new" ] || continue
            found=yes
            try_case "$name, seed $seed" "$path" "$new"
        done
    done
    [ -n "$found" ] || fail_to_run "$directory has no moved programs: --move comes before --try"
}

# Command that runs the program of a case in DIRECTORY: the program itself, or the loader for a library.
set_words() {
    local path=$1
    words=(./program)
    if file -b "$path/old/program" | grep -E 'dynamically linked shared library|bundle' > /dev/null; then
        words=("$directory/loader" ./program)
    elif [ -n "$(cat "$path/arguments")" ]; then
        words+=("$(cat "$path/arguments")")
    fi
}

run_old() {
    set_words "$1"
    run "$1/expected" "$1/old" "${words[@]}"
    rm -f "$1/expected.x86_64"
    if is_universal "$1/old/program" && arch -x86_64 /usr/bin/true >/dev/null 2>&1; then
        run "$1/expected.x86_64" "$1/old" arch -x86_64 "${words[@]}"
    fi
}

is_universal() {
    case $(od -An -tx1 -N4 "$1" | tr -d ' \n') in cafebabe | cafebabf) ;; *) return 1 ;; esac
}

try_case() {
    local name=$1 path=$2 new=$3 image has_moved=
    while IFS= read -r image; do
        if [ ! -f "$new/$image" ]; then
            # It was refused; the program needs its library nevertheless.
            cp "$path/old/$image" "$new/$image"
            continue
        fi
        has_moved=yes
        try_image "$name, $image" "$path/old/$image" "$new/$image" </dev/null
    done <"$path/images"
    [ -n "$has_moved" ] || return
    if ! grep -q '^status 0$' "$path/expected"; then
        if [ -f "$path/given" ]; then
            skip "$name: the original does not run alone either ($(tail -n 1 "$path/expected"))"
        else
            fail "$name: the original runs" "$path/expected.errors"
        fi
        return
    fi
    set_words "$path"
    compare "$name: runs as before" "$path/expected" "$new" "${words[@]}"
    if [ -f "$path/expected.x86_64" ]; then
        compare "$name: runs as before, x86_64" "$path/expected.x86_64" "$new" arch -x86_64 "${words[@]}"
    fi
    try_again_signed "$name" "$path" "$new"
    case $(basename "$path") in
    c | c-opcodes) try_backtrace "$name" "$path" "$new" ;;
    esac
}

# compare NAME EXPECTED DIRECTORY WORD…
compare() {
    local name=$1 expected=$2 place=$3
    shift 3
    run "$directory/found" "$place" "$@"
    if diff "$expected" "$directory/found" >"$log" 2>&1; then
        pass "$name"
    else
        sed -n '1,6p' "$directory/found.errors" >>"$log"
        fail "$name" "$log"
    fi
}

# try_image NAME OLD NEW: checks a file without running it.
try_image() {
    if codesign --verify --strict "$2" >"$log" 2>&1; then
        check "$1: codesign --verify --strict" codesign --verify --strict --verbose "$3"
    else
        skip "$1: codesign does not accept the original either ($(head -n 1 "$log"))"
    fi
    if ! has dyld_info && ! xcrun -f dyld_info >/dev/null 2>&1; then
        skip "$1: there is no dyld_info"
    elif xcrun dyld_info -validate_only "$2" >"$log" 2>&1; then
        check "$1: dyld_info -validate_only" xcrun dyld_info -validate_only "$3"
    else
        skip "$1: dyld_info does not accept the original either ($(head -n 1 "$log"))"
    fi
    if dwarfdump --uuid "$2" >"$directory/uuid" 2>/dev/null && dwarfdump --uuid "$3" >"$log" 2>&1; then
        # The same line names another file, so only the second word counts.
        if [ "$(awk '{print $2}' "$directory/uuid")" != "$(awk '{print $2}' "$log")" ]; then
            pass "$1: another UUID"
        elif cmp -s "$2" "$3"; then
            skip "$1: nothing moved"
        else
            fail "$1: another UUID" "$log"
        fi
    fi
}

# As before delivery: stripped, signed with the hardened runtime, and run.
try_again_signed() {
    local name=$1 path=$2 new=$3 signed=$3.signed image
    rm -rf "$signed"
    mkdir -p "$signed"
    while IFS= read -r image; do
        # Ad hoc signatures have no common team, so libraries could not be loaded under the hardened runtime.
        if ! {
            cp "$new/$image" "$signed/$image" && strip -x "$signed/$image" &&
                if [ "$(wc -l <"$path/images")" -eq 1 ] && [ ! -f "$path/given" ]; then
                    codesign --force --sign - --options runtime "$signed/$image"
                else
                    codesign --force --sign - "$signed/$image"
                fi && codesign --verify --strict "$signed/$image"
        } >"$log" 2>&1 </dev/null; then
            fail "$name, $image: stripped and signed again" "$log"
            return
        fi
    done <"$path/images"
    set_words "$path"
    compare "$name: stripped and signed again, runs as before" "$path/expected" "$signed" "${words[@]}"
    rm -rf "$signed"
}

# Names and lines of the calling functions, by atos with debug information of the image itself.
frames_of() {
    local place=$1 addresses
    rm -rf "$place/program.dSYM"
    dsymutil "$place/program" -o "$place/program.dSYM" || return
    # Where the program was loaded, then the callers.
    read -r -a addresses < <(cd "$place" && limited ./program backtrace | tail -n 1)
    [ "${#addresses[@]}" -ge 4 ] || return
    atos -o "$place/program.dSYM/Contents/Resources/DWARF/program" -l "${addresses[@]}" |
        sed 's/ (in [^)]*)//' | grep -v '^0x'
}

try_backtrace() {
    local name=$1 path=$2 new=$3
    frames_of "$path/old" >"$directory/old-frames" 2>"$log"
    if ! grep -q '^middle ' "$directory/old-frames"; then
        skip "$name: atos does not name the callers in the original"
        return
    fi
    frames_of "$new" >"$directory/new-frames" 2>>"$log"
    if diff "$directory/old-frames" "$directory/new-frames" >>"$log" 2>&1; then
        pass "$name: a new dSYM names the callers"
    else
        fail "$name: a new dSYM names the callers" "$log"
    fi
}

start=$(pwd)
case $step in
make) make_cases ;;
move) move_cases ;;
try) try_cases ;;
all)
    [ "$system" = Darwin ] || fail_to_run "this is no Mac; see --help"
    make_cases
    move_cases
    try_cases
    ;;
esac
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
