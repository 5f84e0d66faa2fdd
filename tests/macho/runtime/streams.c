/* Formatted output and the three standard streams, unbuffered. Files other than these do not exist. */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

struct text {
  char *out;
  size_t room, length;
};

static void put(struct text *text, char character) {
  if (text->length + 1 < text->room) text->out[text->length] = character;
  text->length++;
}
static void fill(struct text *text, char character, int count) {
  while (count-- > 0) put(text, character);
}

struct flags {
  int left, zero, plus, blank, other, width, precision;
};

static void padded(struct text *text, const struct flags *flags, const char *sign, const char *body, int length,
                   int zeros) {
  int prefix = (int)strlen(sign), space = flags->width - prefix - zeros - length;
  if (flags->zero && !flags->left && flags->precision < 0 && space > 0) zeros += space, space = 0;
  if (!flags->left) fill(text, ' ', space);
  for (; *sign; sign++) put(text, *sign);
  fill(text, '0', zeros);
  for (int at = 0; at < length; at++) put(text, body[at]);
  if (flags->left) fill(text, ' ', space);
}

static void integer(struct text *text, const struct flags *flags, uint64_t value, unsigned base, int upper,
                    const char *sign) {
  char digits[64];
  int at = sizeof digits;
  for (; value || at == (int)sizeof digits; value /= base)
    digits[--at] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
  int length = (int)sizeof digits - at;
  padded(text, flags, sign, digits + at, length, flags->precision > length ? flags->precision - length : 0);
}

static void floating(struct text *text, const struct flags *flags, double value, char kind) {
  char body[48];
  int precision = flags->precision < 0 ? 6 : flags->precision > 9 ? 9 : flags->precision, length = 0, exponent = 0;
  const char *sign = value < 0 ? "-" : flags->plus ? "+" : flags->blank ? " " : "";
  if (value < 0) value = -value;
  if (value != value || value > 1e300) {
    struct flags plain = *flags;
    plain.zero = 0;
    padded(text, &plain, sign, value == value ? "inf" : "nan", 3, 0);
    return;
  }
  int scientific = (kind | 32) == 'e' || value >= 1e18;
  if ((kind | 32) == 'g' && value != 0 && (value < 1e-4 || value >= 1e15)) scientific = 1;
  if (scientific && value != 0) {
    for (; value >= 10; value /= 10) exponent++;
    for (; value < 1; value *= 10) exponent--;
  }
  uint64_t scale = 1;
  for (int digit = 0; digit < precision; digit++) scale *= 10;
  uint64_t whole = (uint64_t)value, part = (uint64_t)((value - (double)whole) * (double)scale + 0.5);
  if (part >= scale) whole++, part -= scale;
  struct text plain = {body, sizeof body, 0};
  struct flags none = {.precision = -1};
  integer(&plain, &none, whole, 10, 0, "");
  if (precision || flags->other) {
    put(&plain, '.');
    struct flags digits = {.precision = precision};
    if (precision) integer(&plain, &digits, part, 10, 0, "");
  }
  if ((kind | 32) == 'g')
    while (plain.length && memchr(body, '.', plain.length) && strchr("0.", body[plain.length - 1]))
      if (body[--plain.length] == '.') break;
  if (scientific) {
    put(&plain, kind & 32 ? 'e' : 'E');
    put(&plain, exponent < 0 ? '-' : '+');
    struct flags two = {.precision = 2};
    integer(&plain, &two, (uint64_t)(exponent < 0 ? -exponent : exponent), 10, 0, "");
  }
  length = (int)plain.length;
  struct flags outer = *flags;
  outer.precision = -1;
  padded(text, &outer, sign, body, length, 0);
}

int format(char *out, size_t room, const char *pattern, va_list arguments) {
  struct text text = {out, room, 0};
  for (; *pattern; pattern++) {
    if (*pattern != '%') {
      put(&text, *pattern);
      continue;
    }
    struct flags flags = {.precision = -1};
    for (pattern++; *pattern && strchr("-0+ #", *pattern); pattern++) {
      flags.left |= *pattern == '-', flags.zero |= *pattern == '0', flags.plus |= *pattern == '+';
      flags.blank |= *pattern == ' ', flags.other |= *pattern == '#';
    }
    if (*pattern == '*') {
      flags.width = va_arg(arguments, int), pattern++;
      if (flags.width < 0) flags.left = 1, flags.width = -flags.width;
    }
    for (; *pattern >= '0' && *pattern <= '9'; pattern++) flags.width = flags.width * 10 + *pattern - '0';
    if (*pattern == '.') {
      flags.precision = 0;
      if (*++pattern == '*') flags.precision = va_arg(arguments, int), pattern++;
      for (; *pattern >= '0' && *pattern <= '9'; pattern++) flags.precision = flags.precision * 10 + *pattern - '0';
    }
    int wide = 0, narrow = 0;
    for (; *pattern && strchr("lhzjtqL", *pattern); pattern++) *pattern == 'h' ? narrow++ : wide++;
    switch (*pattern) {
    case 'd':
    case 'i': {
      int64_t value = wide ? va_arg(arguments, int64_t) : va_arg(arguments, int);
      if (narrow == 1) value = (int16_t)value;
      if (narrow == 2) value = (int8_t)value;
      const char *sign = value < 0 ? "-" : flags.plus ? "+" : flags.blank ? " " : "";
      integer(&text, &flags, value < 0 ? -(uint64_t)value : (uint64_t)value, 10, 0, sign);
      break;
    }
    case 'u':
    case 'o':
    case 'x':
    case 'X': {
      uint64_t value = wide ? va_arg(arguments, uint64_t) : va_arg(arguments, unsigned);
      if (narrow == 1) value = (uint16_t)value;
      if (narrow == 2) value = (uint8_t)value;
      const char *sign = flags.other && value && (*pattern | 32) == 'x' ? *pattern == 'x' ? "0x" : "0X" : "";
      integer(&text, &flags, value, *pattern == 'u' ? 10 : *pattern == 'o' ? 8 : 16, *pattern == 'X', sign);
      break;
    }
    case 'p':
      integer(&text, &flags, (uintptr_t)va_arg(arguments, void *), 16, 0, "0x");
      break;
    case 'c': {
      char character = (char)va_arg(arguments, int);
      flags.zero = 0;
      padded(&text, &flags, "", &character, 1, 0);
      break;
    }
    case 's': {
      const char *body = va_arg(arguments, const char *);
      if (!body) body = "(null)";
      flags.zero = 0;
      padded(&text, &flags, "", body, (int)strnlen(body, flags.precision < 0 ? SIZE_MAX : (size_t)flags.precision), 0);
      break;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      floating(&text, &flags, va_arg(arguments, double), *pattern);
      break;
    case '%':
      put(&text, '%');
      break;
    default:
      put(&text, '?');
      if (!*pattern) pattern--;
    }
  }
  if (room) out[text.length < room ? text.length : room - 1] = 0;
  return (int)text.length;
}

/* A stream is its descriptor. */
static FILE streams[3] = {{._file = 0}, {._file = 1}, {._file = 2}};
FILE *__stdinp = &streams[0], *__stdoutp = &streams[1], *__stderrp = &streams[2];

ssize_t write(int file, const void *bytes, size_t size) {
  return host_call(HOST_WRITE, file, (long)bytes, (long)size);
}
ssize_t read(int file, void *bytes, size_t size) { return host_call(HOST_READ, file, (long)bytes, (long)size); }

size_t fwrite(const void *bytes, size_t size, size_t count, FILE *stream) {
  return write(stream->_file, bytes, size * count) < 0 || !size ? 0 : count;
}
int fputs(const char *text, FILE *stream) { return write(stream->_file, text, strlen(text)) < 0 ? EOF : 0; }
#undef putc
#undef putchar
#undef getc
#undef feof
#undef ferror
#undef fileno
int fputc(int character, FILE *stream) {
  char byte = (char)character;
  return write(stream->_file, &byte, 1) == 1 ? character : EOF;
}
int putc(int character, FILE *stream) { return fputc(character, stream); }
int putchar(int character) { return fputc(character, stdout); }
int puts(const char *text) { return fputs(text, stdout) || putchar('\n') < 0 ? EOF : 0; }
int vfprintf(FILE *stream, const char *pattern, va_list arguments) {
  char text[8192];
  int length = format(text, sizeof text, pattern, arguments);
  write(stream->_file, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
  return length;
}
int vprintf(const char *pattern, va_list arguments) { return vfprintf(stdout, pattern, arguments); }
int vsnprintf(char *out, size_t room, const char *pattern, va_list arguments) {
  return format(out, room, pattern, arguments);
}
int __vsnprintf_chk(char *out, size_t room, int flag, size_t size, const char *pattern, va_list arguments) {
  return (void)flag, (void)size, format(out, room, pattern, arguments);
}

#define FORMATTED(call)             \
  va_list arguments;                \
  va_start(arguments, pattern);     \
  int length = call;                \
  va_end(arguments);                \
  return length

int printf(const char *pattern, ...) { FORMATTED(vprintf(pattern, arguments)); }
int fprintf(FILE *stream, const char *pattern, ...) { FORMATTED(vfprintf(stream, pattern, arguments)); }
int snprintf(char *out, size_t room, const char *pattern, ...) { FORMATTED(format(out, room, pattern, arguments)); }
int sprintf(char *out, const char *pattern, ...) { FORMATTED(format(out, INT32_MAX, pattern, arguments)); }
int __snprintf_chk(char *out, size_t room, int flag, size_t size, const char *pattern, ...) {
  (void)flag, (void)size;
  FORMATTED(format(out, room, pattern, arguments));
}
int __sprintf_chk(char *out, int flag, size_t size, const char *pattern, ...) {
  (void)flag;
  FORMATTED(format(out, size, pattern, arguments));
}

int fflush(FILE *stream) { return (void)stream, 0; }
int fclose(FILE *stream) { return (void)stream, 0; }
int ferror(FILE *stream) { return (void)stream, 0; }
int feof(FILE *stream) { return (void)stream, 1; }
int fileno(FILE *stream) { return stream->_file; }
int getc(FILE *stream) { return (void)stream, EOF; }
int ungetc(int character, FILE *stream) { return (void)character, (void)stream, EOF; }
int setvbuf(FILE *stream, char *buffer, int mode, size_t size) {
  return (void)stream, (void)buffer, (void)mode, (void)size, 0;
}
void flockfile(FILE *stream) { (void)stream; }
void funlockfile(FILE *stream) { (void)stream; }
FILE *fopen(const char *path, const char *mode) { return (void)path, (void)mode, errno = ENOENT, NULL; }
void perror(const char *text) { fprintf(stderr, "%s: error %d\n", text, errno); }
