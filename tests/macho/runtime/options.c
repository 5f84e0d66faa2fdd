/* The options of a command line, short and long, without reordering. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

char *optarg;
int optind = 1, opterr = 1, optopt;
static const char *rest;

static int argument_of(int needed, char *const *arguments, int count, const char *attached, int wanted) {
  optarg = (char *)attached;
  if (needed != required_argument || attached) return wanted;
  if (optind < count) {
    optarg = arguments[optind++];
    return wanted;
  }
  fprintf(stderr, "an option wants an argument\n");
  return '?';
}

int getopt_long(int count, char *const *arguments, const char *shorts, const struct option *longs, int *index) {
  if (!rest || !*rest) {
    const char *word = optind < count ? arguments[optind] : NULL;
    if (!word || word[0] != '-' || !word[1]) return -1;
    optind++;
    if (word[1] != '-') {
      rest = word + 1;
    } else {
      if (!word[2]) return -1;
      size_t length = strcspn(word + 2, "=");
      for (int at = 0; longs && longs[at].name; at++) {
        if (strncmp(longs[at].name, word + 2, length) || longs[at].name[length]) continue;
        if (index) *index = at;
        const char *attached = word[2 + length] ? word + 3 + length : NULL;
        int found = argument_of(longs[at].has_arg, arguments, count, attached, longs[at].val);
        if (!longs[at].flag || found == '?') return found;
        *longs[at].flag = found;
        return 0;
      }
      fprintf(stderr, "unknown option %s\n", word);
      return '?';
    }
  }
  char wanted = *rest++;
  const char *known = strchr(shorts, wanted);
  if (!known || wanted == ':') {
    fprintf(stderr, "unknown option -%c\n", optopt = wanted);
    return '?';
  }
  if (known[1] != ':') return wanted;
  const char *attached = *rest ? rest : NULL;
  rest = NULL;
  return argument_of(required_argument, arguments, count, attached, wanted);
}
int getopt(int count, char *const *arguments, const char *shorts) {
  return getopt_long(count, arguments, shorts, NULL, NULL);
}
