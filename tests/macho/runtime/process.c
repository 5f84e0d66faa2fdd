/* The process and its surroundings: arguments, time, settings; no files, no children. */
#include <crt_externs.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <mach/mach_time.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

/* The emulator fills these in. */
int host_argument_count;
char **host_arguments, **host_environment;

int *_NSGetArgc(void) { return &host_argument_count; }
char ***_NSGetArgv(void) { return &host_arguments; }
char ***_NSGetEnviron(void) { return &host_environment; }
int _NSGetExecutablePath(char *out, uint32_t *size) {
  *size = (uint32_t)strlcpy(out, host_arguments[0], *size) + 1;
  return 0;
}
const char *getprogname(void) { return "program"; }

char *getenv(const char *name) {
  size_t length = strlen(name);
  for (char **at = host_environment; at && *at; at++)
    if (!strncmp(*at, name, length) && (*at)[length] == '=') return *at + length + 1;
  return NULL;
}

static int error_number;
int *__error(void) { return &error_number; }
char *strerror(int number) {
  static char text[32];
  snprintf(text, sizeof text, "error %d", number);
  return text;
}
int strerror_r(int number, char *out, size_t room) { return snprintf(out, room, "error %d", number), 0; }

/* Functions at the end of the process; more than these are forgotten. */
static struct {
  void (*call)(void *);
  void *argument;
} finishers[256];
static int finisher_count;

int __cxa_atexit(void (*call)(void *), void *argument, void *image) {
  (void)image;
  if (finisher_count == sizeof finishers / sizeof *finishers) return -1;
  finishers[finisher_count].call = call;
  finishers[finisher_count++].argument = argument;
  return 0;
}
int atexit(void (*call)(void)) { return __cxa_atexit((void (*)(void *))call, NULL, NULL); }
void _tlv_atexit(void (*call)(void *), void *argument) { __cxa_atexit(call, argument, NULL); }
void _exit(int status) {
  for (;;) host_call(HOST_EXIT, status, 0, 0);
}
void exit(int status) {
  while (finisher_count) {
    finisher_count--;
    finishers[finisher_count].call(finishers[finisher_count].argument);
  }
  _exit(status);
}
/* 128 and the number of the signal, as a shell tells it. */
void abort(void) { _exit(128 + SIGABRT); }
void __assert_rtn(const char *function, const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, function, what);
  abort();
}
uintptr_t __stack_chk_guard = 0x5afe57ac;
void __stack_chk_fail(void) {
  fprintf(stderr, "stack smashed\n");
  abort();
}

/* Time stands still but for one tick a question. */
static uint64_t ticks;
uint64_t mach_absolute_time(void) { return ++ticks; }
uint64_t mach_continuous_time(void) { return ++ticks; }
int mach_timebase_info(mach_timebase_info_t info) { return info->numer = info->denom = 1, 0; }
int clock_gettime(clockid_t clock, struct timespec *out) {
  (void)clock;
  *out = (struct timespec){.tv_sec = 1700000000, .tv_nsec = (long)(++ticks % 1000000000)};
  return 0;
}
uint64_t clock_gettime_nsec_np(clockid_t clock) { return (void)clock, ++ticks; }
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  (void)zone;
  *out = (struct timeval){.tv_sec = 1700000000, .tv_usec = (int)(++ticks % 1000000)};
  return 0;
}
time_t time(time_t *out) {
  if (out) *out = 1700000000;
  return 1700000000;
}
int nanosleep(const struct timespec *wanted, struct timespec *left) { return (void)wanted, (void)left, 0; }

/* Numbers that programs take for random must be the same in each run. */
int getentropy(void *out, size_t size) { return memset(out, 0x42, size), 0; }
int CCRandomGenerateBytes(void *out, size_t size) { return memset(out, 0x42, size), 0; }
void arc4random_buf(void *out, size_t size) { memset(out, 0x42, size); }
uint32_t arc4random(void) { return 0x42424242; }

long sysconf(int name) {
  switch (name) {
  case _SC_PAGESIZE: return 0x4000;
  case _SC_NPROCESSORS_ONLN:
  case _SC_NPROCESSORS_CONF: return 1;
  default: return -1;
  }
}
int getpagesize(void) { return 0x4000; }
int sysctlbyname(const char *name, void *out, size_t *size, void *value, size_t length) {
  return (void)name, (void)out, (void)size, (void)value, (void)length, errno = ENOENT, -1;
}
int sysctl(int *name, unsigned count, void *out, size_t *size, void *value, size_t length) {
  return (void)name, (void)count, (void)out, (void)size, (void)value, (void)length, errno = ENOENT, -1;
}
pid_t getpid(void) { return 2; }
uid_t getuid(void) { return 1; }
uid_t geteuid(void) { return 1; }
int issetugid(void) { return 0; }
char *getcwd(char *out, size_t room) {
  if (!out) out = malloc(room = 16);
  strlcpy(out, "/", room);
  return out;
}

static int absent(void) { return errno = ENOENT, -1; }
int open(const char *path, int flags, ...) { return (void)path, (void)flags, absent(); }
int openat(int folder, const char *path, int flags, ...) { return (void)folder, (void)path, (void)flags, absent(); }
int access(const char *path, int mode) { return (void)path, (void)mode, absent(); }
int stat(const char *restrict path, struct stat *restrict out) { return (void)path, (void)out, absent(); }
int lstat(const char *restrict path, struct stat *restrict out) { return (void)path, (void)out, absent(); }
int unlink(const char *path) { return (void)path, absent(); }
int mkdir(const char *path, mode_t mode) { return (void)path, (void)mode, absent(); }
char *realpath(const char *restrict path, char *restrict out) { return (void)path, (void)out, absent(), NULL; }
ssize_t readlink(const char *restrict path, char *restrict out, size_t room) {
  return (void)path, (void)out, (void)room, absent();
}
/* The three standard streams are pipes. */
int fstat(int file, struct stat *out) {
  memset(out, 0, sizeof *out);
  out->st_mode = S_IFIFO | 0600;
  return file <= 2 ? 0 : (errno = EBADF, -1);
}
int close(int file) { return (void)file, 0; }
int fcntl(int file, int command, ...) { return (void)file, (void)command, 0; }
int ioctl(int file, unsigned long request, ...) { return (void)file, (void)request, errno = ENOTTY, -1; }
off_t lseek(int file, off_t offset, int from) { return (void)file, (void)offset, (void)from, errno = ESPIPE, -1; }
ssize_t writev(int file, const struct iovec *parts, int count) {
  ssize_t sum = 0;
  for (int part = 0; part < count; part++) sum += write(file, parts[part].iov_base, parts[part].iov_len);
  return sum;
}

pid_t fork(void) { return errno = ENOSYS, -1; }
int posix_spawnp(void) { return ENOSYS; }
int posix_spawn(void) { return ENOSYS; }

int sigaction(int number, const struct sigaction *restrict wanted, struct sigaction *restrict old) {
  (void)number, (void)wanted;
  if (old) memset(old, 0, sizeof *old);
  return 0;
}
void (*signal(int number, void (*handler)(int)))(int) { return (void)number, (void)handler, SIG_DFL; }
int sigaltstack(const stack_t *restrict wanted, stack_t *restrict old) {
  (void)wanted;
  if (old) *old = (stack_t){.ss_flags = SS_DISABLE};
  return 0;
}
int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old) {
  (void)how, (void)set;
  if (old) *old = 0;
  return 0;
}
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) { return sigprocmask(how, set, old); }

char *setlocale(int category, const char *name) { return (void)category, (void)name, "C"; }
