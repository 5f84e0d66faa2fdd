/* Functions that reach others in every way that compilers write. */
#include <stdio.h>
#include <stdlib.h>

#define KEEP __attribute__((noinline, used))

KEEP static int leaf(int value) { return value * 3 + 1; }
KEEP static int addressed(int value) { return value - 7; }
KEEP static int in_table_one(int value) { return leaf(value) + 1; }
KEEP static int in_table_two(int value) { return value ^ 0x55; }
KEEP static int in_structure(int value) { return value & 0x77; }
KEEP static int after_two_tables(int value) { return value | 0x11; }
KEEP static int relative_one(int value) { return value + 100; }
KEEP static int relative_two(int value) { return value + 200; }
KEEP int exported(int value) { return value + 5; }
KEEP static int continued(int value) { return exported(value + 1); }

typedef int (*operation)(int);

static const operation table[] = {in_table_one, in_table_two, exported};

struct method { const char *name; operation run; const struct method *next; };
static const struct method inner = {"inner", after_two_tables, NULL};
static const struct method methods[] = {{"outer", in_structure, &inner}};

__asm__(".section .rodata\n .p2align 2\n .globl distances\n .hidden distances\n .type distances, @object\n"
        "distances: .long relative_one - distances, relative_two - distances\n .size distances, 8\n .text\n");
extern const int distances[];

const struct method *volatile first = methods;
operation chosen = addressed;
operation *volatile chooser = &chosen;

KEEP int through_table(int which, int value) { return table[which % 3](value); }
KEEP int through_methods(int value) {
    int sum = 0;
    for (const struct method *method = first; method; method = method->next) sum += method->run(value);
    return sum;
}
KEEP int through_distances(int which, int value) {
    return ((operation)((const char *)distances + distances[which & 1]))(value);
}
KEEP int through_variable(int value) { return (*chooser)(value); }
KEEP static int compare(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }
KEEP int sorted(int first, int second) {
    int values[2] = {first, second};
    qsort(values, 2, sizeof *values, compare);
    return values[0];
}

int main(int count, char **arguments) {
    (void)arguments;
    printf("%d %d %d %d %d\n", through_table(count, count), through_methods(count), through_distances(count, count),
           through_variable(count), sorted(9, count));
    return continued(count) == 0;
}
