/* Memory: an arena that only grows, and the functions on bytes. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The emulator maps this and fills it in: zeroed memory for this allocator alone. */
uintptr_t host_arena_start, host_arena_end;

#define PAGE 0x4000ul

static void *take(size_t size, size_t alignment) {
  uintptr_t start = (host_arena_start + alignment - 1) & -alignment;
  if (size > host_arena_end - start || start > host_arena_end) {
    errno = ENOMEM;
    return NULL;
  }
  host_arena_start = start + size;
  return (void *)start;
}

/* A block is preceded by its size. */
#define HEADER 16

void *malloc(size_t size) {
  char *block = take(size + HEADER, 16);
  if (!block) return NULL;
  *(size_t *)block = size;
  return block + HEADER;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

static size_t size_of(const void *block) { return *(const size_t *)((const char *)block - HEADER); }
size_t malloc_size(const void *block) { return block ? size_of(block) : 0; }
size_t malloc_good_size(size_t size) { return size; }

void *realloc(void *old, size_t size) {
  if (!old) return malloc(size);
  size_t before = size_of(old);
  if (size <= before) return old;
  void *block = malloc(size);
  if (block) memcpy(block, old, before);
  return block;
}
void *reallocf(void *old, size_t size) { return realloc(old, size); }

int posix_memalign(void **out, size_t alignment, size_t size) {
  if (alignment < HEADER) alignment = HEADER;
  char *block = take(size + alignment, alignment);
  if (!block) return ENOMEM;
  *(size_t *)(block + alignment - HEADER) = size;
  *out = block + alignment;
  return 0;
}

void *aligned_alloc(size_t alignment, size_t size) {
  void *block = NULL;
  return posix_memalign(&block, alignment, size) ? NULL : block;
}
void *valloc(size_t size) { return aligned_alloc(PAGE, size); }

/* A fixed address lies in memory that is mapped already: Rust's guard page does. */
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
  (void)protection, (void)offset;
  if (flags & MAP_FIXED) return address;
  if (file >= 0 && !(flags & MAP_ANON)) {
    errno = ENODEV;
    return MAP_FAILED;
  }
  void *block = take((size + PAGE - 1) & -PAGE, PAGE);
  return block ? block : MAP_FAILED;
}
int munmap(void *address, size_t size) { return (void)address, (void)size, 0; }
int mprotect(void *address, size_t size, int protection) { return (void)address, (void)size, (void)protection, 0; }
int madvise(void *address, size_t size, int advice) { return (void)address, (void)size, (void)advice, 0; }
int posix_madvise(void *address, size_t size, int advice) { return (void)address, (void)size, (void)advice, 0; }
int mlock(const void *address, size_t size) { return (void)address, (void)size, 0; }

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
  char *out = to;
  const char *in = from;
  for (; size >= 8; size -= 8, in += 8, out += 8) *(uint64_t *)out = *(const uint64_t *)in;
  while (size--) *out++ = *in++;
  return to;
}
void *memmove(void *to, const void *from, size_t size) {
  if ((uintptr_t)to - (uintptr_t)from >= size) return memcpy(to, from, size);
  char *out = (char *)to + size;
  const char *in = (const char *)from + size;
  while (size--) *--out = *--in;
  return to;
}
void *memset(void *to, int value, size_t size) {
  unsigned char *out = to;
  uint64_t eight = 0x0101010101010101u * (unsigned char)value;
  for (; size >= 8; size -= 8, out += 8) *(uint64_t *)out = eight;
  while (size--) *out++ = (unsigned char)value;
  return to;
}
void bzero(void *to, size_t size) { memset(to, 0, size); }
void __bzero(void *to, size_t size) { memset(to, 0, size); }
static void pattern(void *to, const void *what, size_t length, size_t size) {
  for (size_t at = 0; at < size; at++) ((char *)to)[at] = ((const char *)what)[at % length];
}
void memset_pattern4(void *to, const void *what, size_t size) { pattern(to, what, 4, size); }
void memset_pattern8(void *to, const void *what, size_t size) { pattern(to, what, 8, size); }
void memset_pattern16(void *to, const void *what, size_t size) { pattern(to, what, 16, size); }
int memcmp(const void *left, const void *right, size_t size) {
  const unsigned char *one = left, *two = right;
  for (; size--; one++, two++)
    if (*one != *two) return *one - *two;
  return 0;
}
int bcmp(const void *left, const void *right, size_t size) { return memcmp(left, right, size); }
void *memchr(const void *in, int wanted, size_t size) {
  const unsigned char *at = in;
  for (; size--; at++)
    if (*at == (unsigned char)wanted) return (void *)at;
  return NULL;
}
void *memmem(const void *in, size_t size, const void *wanted, size_t length) {
  const char *at = in;
  for (; size >= length; at++, size--)
    if (!memcmp(at, wanted, length)) return (void *)at;
  return NULL;
}

void *__memcpy_chk(void *to, const void *from, size_t size, size_t room) { return (void)room, memcpy(to, from, size); }
void *__memmove_chk(void *to, const void *from, size_t size, size_t room) { return (void)room, memmove(to, from, size); }
void *__memset_chk(void *to, int value, size_t size, size_t room) { return (void)room, memset(to, value, size); }
