// Copies of blocks: assembly with branches that have only a short form
#include <stdio.h>

#define ALONE __attribute__((noinline))

#if defined(__x86_64__)
ALONE static unsigned long rounds(unsigned long count) {
  unsigned long all = 0;
  __asm__ volatile("jrcxz 2f\n1: addq %1, %0\n loop 1b\n2:\n" : "+r"(all), "+c"(count));
  return all;
}
ALONE static long until(const char *text, unsigned long length) {
  const char *at = text;
  __asm__ volatile("1: cmpb $'x', (%0)\n leaq 1(%0), %0\n loopne 1b\n" : "+r"(at), "+c"(length)::"cc", "memory");
  return at - text;
}
ALONE static int is_zero(unsigned long value) {
  int result;
  __asm__ volatile("movl $0, %0\n jrcxz 3f\n jmp 4f\n 3: movl $1, %0\n 4:\n" : "=r"(result) : "c"(value));
  return result;
}
ALONE static int carry(unsigned left, unsigned right) {
  int result = 0;
  __asm__ volatile("addl %2, %1\n jnc 5f\n movl $1, %0\n .nops 140\n 5: nop\n" : "+r"(result), "+r"(left) : "r"(right) : "cc");
  return result;
}
#else
ALONE static unsigned long rounds(unsigned long count) {
  unsigned long all = 0;
  __asm__ volatile("cbz %1, 2f\n1: add %0, %0, %1\n sub %1, %1, #1\n cbnz %1, 1b\n2:\n" : "+r"(all), "+r"(count));
  return all;
}
ALONE static long until(const char *text, unsigned long length) {
  unsigned long at = 0;
  while (at < length && text[at++] != 'x') {}
  return (long)at;
}
ALONE static int is_zero(unsigned long value) {
  int result;
  __asm__ volatile("mov %w0, #0\n cbnz %1, 4f\n mov %w0, #1\n4:\n" : "=&r"(result) : "r"(value));
  return result;
}
ALONE static int carry(unsigned left, unsigned right) {
  int result;
  __asm__ volatile("mov %w0, #0\n adds %w1, %w1, %w2\n b.cc 5f\n mov %w0, #1\n5: nop\n" : "=&r"(result), "+r"(left) : "r"(right) : "cc");
  return result;
}
#endif

int main(void) {
  for (unsigned long i = 0; i < 5; i++) printf("%lu %d %d\n", rounds(i), is_zero(i), carry((unsigned)i, 0xfffffffeu));
  printf("%ld %ld\n", until("abcxdef", 7), until("abc", 3));
  return 0;
}
