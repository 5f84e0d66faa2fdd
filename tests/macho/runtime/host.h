/* What the emulator does for the library: everything else is done inside. */
#pragma once

/* Numbers of the kernel's calls as macOS has them. */
enum { HOST_EXIT = 1, HOST_READ = 3, HOST_WRITE = 4 };

/* Asks the emulator; gives what it answers. */
long host_call(long number, long first, long second, long third);

/* Formats like vsnprintf; floating-point numbers get at most six digits after the point. */
int format(char *out, unsigned long room, const char *pattern, __builtin_va_list arguments);
