// Records the first call of every function of a program that was built with -fxray-instrument, and removes the function's
// instrumentation at that call. README.md next to this file says how to build and run.
//
// The handler runs in any thread and in signal handlers: it never waits for a lock, and gets memory only from the
// kernel.

#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Of compiler-rt's xray/xray_interface.h, which not every package contains.
extern void __xray_init(void);
extern int __xray_set_handler(void (*handler)(int32_t id, int event));
extern int __xray_patch(void);
extern int __xray_unpatch_function(int32_t id);
extern uintptr_t __xray_function_address(int32_t id);

enum { EVENT_ENTRY = 0, EVENT_ENTRY_WITH_ARGUMENT = 3 };
enum { FUNCTION_BITS = 24, OBJECTS = 128 };

// Address space, of which the kernel provides only pages that are touched.
enum { CAPACITY = 1 << 22 };

#define NEVER_INSTRUMENT __attribute__((xray_never_instrument))

static _Atomic uint32_t *executed; // ids in order of their first call
static _Atomic uint64_t executed_count;
static _Atomic uint64_t lost;
// Calls by object and function; an object's table is made when its first function runs.
static _Atomic(_Atomic uint32_t *) calls[OBJECTS];
static uint32_t hits_until_unpatched = 1;
static atomic_flag unpatching = ATOMIC_FLAG_INIT;

NEVER_INSTRUMENT static void *reserve(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

// The table of one object; two threads may make it at once, and then one of them frees its own.
NEVER_INSTRUMENT static _Atomic uint32_t *calls_of(uint32_t object) {
  const size_t bytes = sizeof(uint32_t) << FUNCTION_BITS;
  _Atomic uint32_t *table = atomic_load_explicit(&calls[object], memory_order_acquire);
  if (table) return table;
  _Atomic uint32_t *fresh = reserve(bytes);
  if (!fresh) return NULL;
  if (atomic_compare_exchange_strong(&calls[object], &table, fresh)) return fresh;
  munmap((void *)fresh, bytes);
  return table;
}

NEVER_INSTRUMENT static void handle(int32_t signed_id, int event) {
  if (event != EVENT_ENTRY && event != EVENT_ENTRY_WITH_ARGUMENT) return;
  const uint32_t id = (uint32_t)signed_id, object = id >> FUNCTION_BITS;
  _Atomic uint32_t *table = object < OBJECTS ? calls_of(object) : NULL;
  if (!table) {
    atomic_fetch_add(&lost, 1);
    return;
  }
  const uint32_t before = atomic_fetch_add(&table[id & ((1u << FUNCTION_BITS) - 1)], 1);
  if (before == 0) {
    const uint64_t place = atomic_fetch_add(&executed_count, 1);
    if (place < CAPACITY) atomic_store(&executed[place], id);
    else atomic_fetch_add(&lost, 1);
  }
  // XRay makes the page writable, writes, and makes it executable again: two at once would write into a page that the
  // other has just protected. The second thread leaves the function to its next call.
  if (before + 1 >= hits_until_unpatched && !atomic_flag_test_and_set(&unpatching)) {
    __xray_unpatch_function(signed_id);
    atomic_flag_clear(&unpatching);
  }
}

// The data needed to write addresses as they are in the image.
struct search {
  uintptr_t address;
  uintptr_t bias;
  const char *path;
};

NEVER_INSTRUMENT static int find_object(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  struct search *search = data;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && search->address >= start && search->address - start < segment->p_memsz) {
      search->bias = info->dlpi_addr;
      search->path = info->dlpi_name;
      return 1;
    }
  }
  return 0;
}

// Writes the list. Called when the program exits; call it yourself before _exit() or exec.
NEVER_INSTRUMENT void reorder_xray_coverage_write(void) {
  const char *pattern = getenv("REORDER_XRAY_FILE");
  if (!pattern || !*pattern) pattern = "xray-coverage.%p.txt";
  char path[4096];
  const char *process = strstr(pattern, "%p");
  if (process) {
    snprintf(path, sizeof path, "%.*s%ld%s", (int)(process - pattern), pattern, (long)getpid(), process + 2);
  } else {
    snprintf(path, sizeof path, "%s", pattern);
  }
  FILE *file = fopen(path, "we");
  if (!file) {
    perror(path);
    return;
  }
  fprintf(file, "# xray coverage 1\n# process %ld\n", (long)getpid());
  if (atomic_load(&lost)) fprintf(file, "# lost %" PRIu64 "\n", atomic_load(&lost));
  uint64_t count = atomic_load(&executed_count);
  if (count > CAPACITY) count = CAPACITY;
  char named[OBJECTS] = {0};
  for (uint64_t place = 0; place < count; place++) {
    const uint32_t id = atomic_load(&executed[place]), object = id >> FUNCTION_BITS;
    if (id == 0) continue; // another thread is about to write it
    struct search search = {__xray_function_address((int32_t)id), 0, NULL};
    // A library that was unloaded has no address any more.
    if (search.address == 0 || !dl_iterate_phdr(find_object, &search)) continue;
    if (!named[object]) {
      named[object] = 1;
      char program[4096] = "";
      const char *name = search.path;
      if (!name || !*name) {
        const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        program[length > 0 ? length : 0] = '\0';
        name = program;
      }
      fprintf(file, "# object %" PRIu32 " %s\n", object, name);
    }
    fprintf(file, "%" PRIu32 " 0x%" PRIxPTR, id, search.address - search.bias);
    if (hits_until_unpatched > 1) {
      fprintf(file, " %" PRIu32, atomic_load(&calls_of(object)[id & ((1u << FUNCTION_BITS) - 1)]));
    }
    fputc('\n', file);
  }
  if (fclose(file) != 0) perror(path);
}

// Before main and before the constructors of the program.
__attribute__((constructor(101))) NEVER_INSTRUMENT static void start(void) {
  const char *hits = getenv("REORDER_XRAY_HITS");
  const unsigned long parsed = hits ? strtoul(hits, NULL, 10) : 1;
  hits_until_unpatched = parsed == 0 ? 1 : parsed > UINT32_MAX ? UINT32_MAX : (uint32_t)parsed;
  executed = reserve(sizeof(*executed) * (size_t)CAPACITY);
  if (!executed || !calls_of(0)) {
    perror("reorder_xray_coverage");
    return;
  }
  atexit(reorder_xray_coverage_write);
  __xray_init();
  __xray_set_handler(handle);
  __xray_patch();
}
