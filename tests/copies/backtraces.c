// Copies of blocks: stacks as unwinders of three kinds see them, with the names that the loader knows
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unwind.h>

#define ALONE __attribute__((noinline))
enum { MOST = 64 };

static int is_named;

// A name is printed in a line of its own, `-` where there is none: copies may have none, but no wrong one.
ALONE void show(const char *kind, void **places, int count) {
  printf("%s: %d frames\n", kind, count);
  for (int i = 0; is_named && i < count; i++) {
    Dl_info information;
    int is_known = dladdr((char *)places[i] - 1, &information) && information.dli_sname;
    printf("name %s\n", is_known ? information.dli_sname : "-");
  }
}

struct Walk { void *places[MOST]; int count; };
static _Unwind_Reason_Code note(struct _Unwind_Context *context, void *data) {
  struct Walk *walk = data;
  if (walk->count < MOST) walk->places[walk->count++] = (void *)_Unwind_GetIP(context);
  return _URC_NO_REASON;
}

// libunwind of nongnu.org, where it is installed.
ALONE void other_unwinder(void) {
#ifdef __x86_64__
  void *library = dlopen("libunwind.so.8", RTLD_NOW);
  int (*context_of)(ucontext_t *) = library ? dlsym(library, "_Ux86_64_getcontext") : 0;
  int (*begin)(void *, ucontext_t *) = library ? dlsym(library, "_ULx86_64_init_local") : 0;
  int (*step)(void *) = library ? dlsym(library, "_ULx86_64_step") : 0;
  int (*read)(void *, int, unsigned long *) = library ? dlsym(library, "_ULx86_64_get_reg") : 0;
  if (!context_of || !begin || !step || !read) { puts("no other unwinder"); return; }
  static unsigned long cursor[127];
  static ucontext_t context;
  struct Walk walk = {{0}, 0};
  context_of(&context);
  begin(cursor, &context);
  do {
    unsigned long place = 0;
    read(cursor, 16, &place);
    if (walk.count < MOST) walk.places[walk.count++] = (void *)place;
  } while (step(cursor) > 0);
  show("libunwind", walk.places, walk.count);
#endif
}

ALONE void frames(void) {
  struct Walk walk = {{0}, 0};
  show("backtrace", walk.places, backtrace(walk.places, MOST));
  walk.count = 0;
  _Unwind_Backtrace(note, &walk);
  show("libgcc", walk.places, walk.count);
  other_unwinder();
}

static void handler(int signal) { printf("signal %d\n", signal); frames(); }

ALONE int deep(int x) {
  switch (x % 5) {
  case 0: frames(); return 1;
  case 1: return deep(x - 1) + 1;
  case 2: { volatile char room[200]; memset((char *)room, x, sizeof room); return deep(x - 1) + room[7]; }
  case 3: { int many = deep(x - 1); for (int i = 0; i < x; i++) many += i * x; return many; }
  default: raise(SIGUSR1); return deep(x - 1) + 2;
  }
}
ALONE int wide(int x) { int all = 0; for (int i = x; i < x + 3; i++) if (i != 5) all += deep(i); return all; }

int main(int count, char **arguments) {
  (void)arguments;
  is_named = count > 1;
  signal(SIGUSR1, handler);
  printf("%d\n", wide(3));
  return 0;
}
