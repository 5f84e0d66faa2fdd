/* The loaded images, as dyld tells of them. libunwind finds the tables of each by this. */
#include <mach-o/loader.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The emulator fills these in: headers in the order of loading. */
#define IMAGES 16
uint32_t host_image_count;
const struct mach_header_64 *host_images[IMAGES];

uint32_t _dyld_image_count(void) { return host_image_count; }
const struct mach_header *_dyld_get_image_header(uint32_t index) {
  return index < host_image_count ? (const struct mach_header *)host_images[index] : NULL;
}

static const struct load_command *commands(const struct mach_header_64 *header) {
  return (const struct load_command *)(header + 1);
}
static const struct load_command *next(const struct load_command *command) {
  return (const struct load_command *)((const char *)command + command->cmdsize);
}

static const struct segment_command_64 *segment(const struct mach_header_64 *header, const char *name) {
  const struct load_command *command = commands(header);
  for (uint32_t left = header->ncmds; left--; command = next(command)) {
    const struct segment_command_64 *found = (const struct segment_command_64 *)command;
    if (command->cmd == LC_SEGMENT_64 && !strncmp(found->segname, name, 16)) return found;
  }
  return NULL;
}
static intptr_t slide(const struct mach_header_64 *header) {
  return (intptr_t)header - (intptr_t)segment(header, SEG_TEXT)->vmaddr;
}
intptr_t _dyld_get_image_vmaddr_slide(uint32_t index) {
  return index < host_image_count ? slide(host_images[index]) : 0;
}
const char *_dyld_get_image_name(uint32_t index) { return index < host_image_count ? "image" : NULL; }

struct unwind_sections {
  const struct mach_header *header;
  const void *frames;
  uintptr_t frames_length;
  const void *compact;
  uintptr_t compact_length;
};

bool _dyld_find_unwind_sections(void *address, struct unwind_sections *out) {
  for (uint32_t index = 0; index < host_image_count; index++) {
    const struct mach_header_64 *header = host_images[index];
    const struct segment_command_64 *text = segment(header, SEG_TEXT);
    if ((uintptr_t)address - (uintptr_t)header >= text->vmsize) continue;
    *out = (struct unwind_sections){.header = (const struct mach_header *)header};
    const struct section_64 *section = (const struct section_64 *)(text + 1);
    for (uint32_t left = text->nsects; left--; section++) {
      const void *start = (const void *)(section->addr + (uintptr_t)slide(header));
      if (!strncmp(section->sectname, "__eh_frame", 16)) out->frames = start, out->frames_length = section->size;
      if (!strncmp(section->sectname, "__unwind_info", 16)) out->compact = start, out->compact_length = section->size;
    }
    return true;
  }
  return false;
}

void *dlsym(void *handle, const char *name) { return (void)handle, (void)name, NULL; }
int dladdr(const void *address, void *out) { return (void)address, (void)out, 0; }
void _dyld_register_func_for_remove_image(void *call) { (void)call; }
