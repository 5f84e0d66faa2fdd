/* Functions, tables and references of every kind that a program of a few kilobytes can hold; links with no library. */
#define KEEP __attribute__((noinline, used))
#define HIDDEN __attribute__((visibility("hidden")))

struct item { const char *name; int (*call)(int); };

static int total;
KEEP int triple(int value) { return value * 3 + 1; }
KEEP static int fivefold(int value) { total += value; return value * 5 + 7; }
KEEP static int bystander(int value) { return value - 2; }
HIDDEN KEEP int deep(int value) { return value <= 0 ? total : deep(value - 1) + triple(value); }

static const struct item items[] = {{"triple", triple}, {"fivefold", fivefold}, {"deep", deep}};
int (*const table[])(int) = {triple, fivefold, bystander, deep};
int (*volatile chosen)(int) = bystander;

KEEP int pick(int which, int value) {
    switch (which) {
        case 0: return triple(value);
        case 1: return fivefold(value) + 2;
        case 2: return value / 7;
        case 3: return deep(value) - 9;
        case 4: return value ^ 0x55;
        case 5: return triple(value) * fivefold(value);
        case 6: return items[value & 1].call(value);
        case 7: return chosen(value) + total;
        default: return -1;
    }
}

KEEP int computed(int which) {
    static const void *const labels[] = {&&first, &&second, &&third};
    goto *labels[which % 3u];
first:
    total += 1;
second:
    total += triple(which);
third:
    return total;
}

KEEP static void begin(void) { total = bystander(4); }
#ifdef __APPLE__
__attribute__((used, section("__DATA,__mod_init_func"))) static void (*const initial)(void) = begin;
#else
__attribute__((used, section(".init_array"))) static void (*const initial)(void) = begin;
#endif

int main(int count) {
    int sum = computed(count);
    for (int which = 0; which < 9; which++) {
        sum += pick(which, which * 3) + table[which & 3](which);
    }
    return sum & 0x7f;
}
