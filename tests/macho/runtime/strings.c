/* Strings, numbers in strings, characters, sorting. */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int tolower(int character) { return character >= 'A' && character <= 'Z' ? character + 32 : character; }
int toupper(int character) { return character >= 'a' && character <= 'z' ? character - 32 : character; }

size_t strlen(const char *text) {
  const char *end = text;
  while (*end) end++;
  return (size_t)(end - text);
}
size_t strnlen(const char *text, size_t limit) {
  size_t length = 0;
  while (length < limit && text[length]) length++;
  return length;
}
int strncmp(const char *left, const char *right, size_t limit) {
  for (; limit--; left++, right++) {
    if (*left != *right) return (unsigned char)*left - (unsigned char)*right;
    if (!*left) return 0;
  }
  return 0;
}
int strcmp(const char *left, const char *right) { return strncmp(left, right, SIZE_MAX); }
int strcoll(const char *left, const char *right) { return strcmp(left, right); }
int strncasecmp(const char *left, const char *right, size_t limit) {
  for (; limit--; left++, right++) {
    int difference = tolower((unsigned char)*left) - tolower((unsigned char)*right);
    if (difference || !*left) return difference;
  }
  return 0;
}
int strcasecmp(const char *left, const char *right) { return strncasecmp(left, right, SIZE_MAX); }
char *stpcpy(char *to, const char *from) {
  size_t length = strlen(from);
  memcpy(to, from, length + 1);
  return to + length;
}
char *strcpy(char *to, const char *from) { return stpcpy(to, from), to; }
char *strncpy(char *to, const char *from, size_t size) {
  size_t length = strnlen(from, size);
  memcpy(to, from, length);
  memset(to + length, 0, size - length);
  return to;
}
char *strcat(char *to, const char *from) { return strcpy(to + strlen(to), from), to; }
char *strncat(char *to, const char *from, size_t size) {
  char *end = to + strlen(to);
  size_t length = strnlen(from, size);
  memcpy(end, from, length);
  end[length] = 0;
  return to;
}
size_t strlcpy(char *to, const char *from, size_t size) {
  size_t length = strlen(from);
  if (size) {
    size_t kept = length < size ? length : size - 1;
    memcpy(to, from, kept);
    to[kept] = 0;
  }
  return length;
}
size_t strlcat(char *to, const char *from, size_t size) {
  size_t before = strnlen(to, size);
  return before + strlcpy(to + before, from, size - before);
}
char *__strcpy_chk(char *to, const char *from, size_t room) { return (void)room, strcpy(to, from); }
char *__strcat_chk(char *to, const char *from, size_t room) { return (void)room, strcat(to, from); }
char *__strncpy_chk(char *to, const char *from, size_t size, size_t room) {
  return (void)room, strncpy(to, from, size);
}
size_t __strlcpy_chk(char *to, const char *from, size_t size, size_t room) {
  return (void)room, strlcpy(to, from, size);
}
char *strchr(const char *text, int wanted) {
  for (;; text++) {
    if (*text == (char)wanted) return (char *)text;
    if (!*text) return NULL;
  }
}
char *strrchr(const char *text, int wanted) {
  const char *found = NULL;
  for (;; text++) {
    if (*text == (char)wanted) found = text;
    if (!*text) return (char *)found;
  }
}
char *strstr(const char *text, const char *wanted) { return memmem(text, strlen(text), wanted, strlen(wanted)); }
size_t strspn(const char *text, const char *set) {
  size_t length = 0;
  while (text[length] && strchr(set, text[length])) length++;
  return length;
}
size_t strcspn(const char *text, const char *set) {
  size_t length = 0;
  while (text[length] && !strchr(set, text[length])) length++;
  return length;
}
char *strpbrk(const char *text, const char *set) {
  text += strcspn(text, set);
  return *text ? (char *)text : NULL;
}
char *strdup(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = malloc(size);
  return copy ? memcpy(copy, text, size) : NULL;
}

static int digit(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'z') return character - 'a' + 10;
  if (character >= 'A' && character <= 'Z') return character - 'A' + 10;
  return 99;
}
unsigned long long strtoull(const char *text, char **end, int base) {
  const char *at = text + strspn(text, " \t\n\v\f\r");
  int negative = *at == '-';
  if (*at == '-' || *at == '+') at++;
  if ((base == 0 || base == 16) && at[0] == '0' && (at[1] | 32) == 'x' && digit(at[2]) < 16) at += 2, base = 16;
  if (base == 0) base = *at == '0' ? 8 : 10;
  unsigned long long value = 0;
  const char *digits = at;
  for (; digit(*at) < base; at++) value = value * (unsigned)base + (unsigned)digit(*at);
  if (end) *end = (char *)(at == digits ? text : at);
  return negative ? -value : value;
}
unsigned long strtoul(const char *text, char **end, int base) { return strtoull(text, end, base); }
long long strtoll(const char *text, char **end, int base) { return (long long)strtoull(text, end, base); }
long strtol(const char *text, char **end, int base) { return (long)strtoull(text, end, base); }
int atoi(const char *text) { return (int)strtol(text, NULL, 10); }
long atol(const char *text) { return strtol(text, NULL, 10); }
double strtod(const char *text, char **end) {
  const char *at = text + strspn(text, " \t\n\v\f\r");
  double sign = *at == '-' ? -1 : 1, value = 0, scale = 1;
  if (*at == '-' || *at == '+') at++;
  for (; digit(*at) < 10; at++) value = value * 10 + digit(*at);
  if (*at == '.')
    for (at++; digit(*at) < 10; at++) value = value * 10 + digit(*at), scale *= 10;
  if ((*at | 32) == 'e') {
    char *after;
    long exponent = strtol(at + 1, &after, 10);
    for (; exponent > 0; exponent--) value *= 10;
    for (; exponent < 0; exponent++) scale *= 10;
    at = after;
  }
  if (end) *end = (char *)at;
  return sign * value / scale;
}
double atof(const char *text) { return strtod(text, NULL); }

int abs(int value) { return value < 0 ? -value : value; }
int isatty(int file) { return (void)file, 0; }


static void exchange(char *left, char *right, size_t size) {
  while (size--) {
    char kept = *left;
    *left++ = *right;
    *right++ = kept;
  }
}
/* Heap sort: no recursion, no worst case. */
void qsort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *)) {
  char *base = items;
  size_t start = count / 2, end = count;
  while (end > 1) {
    if (start) {
      start--;
    } else {
      end--;
      exchange(base, base + end * size, size);
    }
    for (size_t root = start, child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && compare(base + child * size, base + (child + 1) * size) < 0) child++;
      if (compare(base + root * size, base + child * size) >= 0) break;
      exchange(base + root * size, base + child * size, size);
    }
  }
}
void *bsearch(const void *key, const void *items, size_t count, size_t size,
              int (*compare)(const void *, const void *)) {
  const char *base = items;
  while (count) {
    const char *middle = base + count / 2 * size;
    int order = compare(key, middle);
    if (!order) return (void *)middle;
    if (order > 0) base = middle + size, count--;
    count /= 2;
  }
  return NULL;
}
