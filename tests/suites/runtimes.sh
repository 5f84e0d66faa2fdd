# Suites of interpreters and of a browser. scripts/bulk/suites sources this file, which uses its functions and variables. node,
# deno and bun run every n-th test of test262, the conformance tests of ECMAScript: SAMPLE tests in all (400), from the checkout
# that TEST262 names (default: a clone). chromium renders the pages that pages.py writes. php and ruby run tests of Debian's sources.
# shellcheck shell=bash disable=SC2034,SC2154  # top, work and image are the script's

# What a line of a test that passed matches.
declare -A passes=([node]='\t0 ' [deno]='\t0 ' [bun]='\t0 ' [chromium]='\t0 0 ' [php]='\tPASSED$' [ruby]='\tran$')

# run_conformance RESULTS PROGRAM [ARGUMENT…] -- [GROUP…]: the sample of test262.
run_conformance() {
  local results=$1 command=() checkout
  checkout=$(realpath -m "${TEST262:-$work/test262}")
  shift
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
  if [ ! -d "$checkout" ]; then
    need git
    git clone --quiet --depth 1 https://github.com/tc39/test262 "$checkout"
  fi
  as_nobody /usr/bin/python3 -B "$top/tests/suites/conformance.py" "$checkout" "${SAMPLE:-400}" "${command[@]}" -- "$@" \
    > "$results" 2> "$results.log" || { cat "$results.log" >&2; return 1; }
}

# npm comes with some distributions of Node.js, too.
need_npm() { command -v npm > /dev/null || need npm; }

build_node() { need_npm; "$top/scripts/bulk/released" node "$work/node/package"; }
run_node() { run_conformance "$1" "$image" -- "${@:2}"; }

build_deno() { need_npm; "$top/scripts/bulk/released" deno "$work/deno/package"; }
run_deno() { run_conformance "$1" "$image" run --allow-all --no-lock -- "${@:2}"; }

build_bun() { need_npm; "$top/scripts/bulk/released" bun "$work/bun/package"; }
run_bun() { run_conformance "$1" "$image" run -- "${@:2}"; }

build_chromium() {
  local folder=$work/chromium/place
  need chromium
  if [ ! -d "$folder" ]; then
    rm -rf "$folder.new"
    mkdir -p "$work/chromium"
    cp -r /usr/lib/chromium "$folder.new"
    mv "$folder.new" "$folder"
  fi
  python3 -B "$top/tests/suites/pages.py" "$work/chromium/pages"
  echo "$folder/chromium"
}
# A line a page: how both runs ended, the document after its scripts have run, and the picture.
run_chromium() {
  local results=$1 page name
  : > "$results.log"
  for page in "$work/chromium/pages"/*.html; do
    name=$(basename "$page" .html)
    # shellcheck disable=SC2016  # expanded by the inner shell, in its own directory
    as_nobody bash -c '
      flags=(--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=800,600)
      document=0 picture=0
      : > picture.png
      timeout 120 "$1" "${flags[@]}" --dump-dom "file://$2" > document 2>> log || document=$?
      timeout 120 "$1" "${flags[@]}" --screenshot=picture.png "file://$2" > /dev/null 2>> log || picture=$?
      [ -s document ] || document=empty
      [ -s picture.png ] || picture=empty
      cat log >&2
      printf "pages\t%s\t%s %s %s %s\n" "$3" "$document" "$picture" \
        "$(sha256sum < document | cut -c -16)" "$(sha256sum < picture.png | cut -c -16)"
    ' bash "$image" "$page" "$name" 2>> "$results.log"
  done > "$results"
}

build_php() {
  local root=$work/php/root
  "$top/scripts/bulk/unpack" amd64 "$root" php8.2-cli php8.2-common
  [ -d "$work/php/source" ] || source_of php8.2 "$work/php/source"
  echo "$root/usr/bin/php8.2"
}
# Tests write beside themselves. Groups are their folders.
run_php() {
  local results=$1 copy groups=("${@:2}")
  [ ${#groups[@]} -gt 0 ] || groups=(Zend/tests tests ext/standard/tests ext/spl/tests)
  copy=$(mktemp -d)
  cp -r "$work/php/source/run-tests.php" "$work/php/source/Zend" "$work/php/source/tests" "$copy"
  mkdir -p "$copy/ext"
  cp -r "$work/php/source/ext/standard" "$work/php/source/ext/spl" "$copy/ext"
  chmod -R a+rwX "$copy"
  # shellcheck disable=SC2016  # expanded by the inner shell
  as_nobody bash -c 'cd "$1" && LD_LIBRARY_PATH=$2/usr/lib/x86_64-linux-gnu TEST_PHP_EXECUTABLE=$3 \
      "$3" -n run-tests.php -n -q -j2 -W outcomes "${@:4}"' bash "$copy" "$work/php/root" "$image" "${groups[@]}" > "$results.log" 2>&1 || true
  sed -n "s/^\([A-Z]*\)\t\(.*\)\/\([^/]*\)$/\2\t\3\t\1/p" "$copy/outcomes" | sed "s|^$copy/||" | sort > "$results"
  rm -rf "$copy"
}

# The interpreter is in its library.
build_ruby() {
  local root=$work/ruby/root
  "$top/scripts/bulk/unpack" amd64 "$root" ruby3.1 libruby3.1
  [ -d "$work/ruby/source" ] || source_of ruby3.1 "$work/ruby/source"
  readlink -f "$root/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"
}
# Left out: compilers at run time, which wait for one that is not there, and a test that takes files at random.
run_ruby() {
  local results=$1 library=$work/ruby/root/usr/lib
  # shellcheck disable=SC2016  # expanded by the inner shell
  as_nobody bash -c 'cd "$1/source" && LD_LIBRARY_PATH=$2/x86_64-linux-gnu \
      RUBYLIB=$2/ruby/3.1.0:$2/x86_64-linux-gnu/ruby/3.1.0:$1/root/usr/lib/ruby/vendor_ruby \
      timeout 1200 "$1/root/usr/bin/ruby3.1" --disable-gems -Itool/lib test/runner.rb -v --no-retry -x jit -x require_lib \
      ruby json stringio strscan date digest erb csv psych test_set.rb test_time.rb' \
    bash "$work/ruby" "$library" > "$results.log" 2>&1 || true
  # Each test as it ran, and those that failed or were skipped again, below their heading.
  sed -nE '
    s/^\[ *[0-9]+\/[0-9]+\] ([A-Za-z0-9_:]+)#(.+) = [0-9.]+ s.*$/\1\t\2\tran/p
    s/^Finished tests in .*/all\tsuite\tfinished/p
    /^ *[0-9]+\) (Failure|Error|Skipped):$/ { s/^ *[0-9]+\) (.*):$/\1/; N; s/^(.*)\n([A-Za-z0-9_:]+)#([^ :]+).*$/\2\t\3\t\1/p; }
  ' "$results.log" | sort > "$results"
  [ "$(grep -c $'^all\tsuite\tfinished' "$results")" -gt 0 ] || echo "ruby: the tests did not finish; see $results.log" >&2
}
