// A list, calls through pointers, code that gcc moves to .text.unlikely and .text.startup, and variables that live in
// registers for a while. Every statement of interest has a line of its own: debuggers stop by line.
#include <stdio.h>
#include <stdlib.h>

struct node {
    int value;
    struct node *next;
};

int digits(int number);
int cold_path(int number);

#define TRIPLE(number) ((number) * 3)

__attribute__((noinline)) int one(int number) {
    int triple = TRIPLE(number);
    if (triple > 100)
        triple = cold_path(triple);
    return triple + 3;
}

__attribute__((noinline)) int two(int count) {
    int total = 0;
    for (int index = 0; index < count; index++) {
        int part = one(index);
        total += part;
    }
    return total + 5;
}

__attribute__((noinline)) struct node *push(struct node *head, int value) {
    struct node *added = malloc(sizeof *added);
    if (!added)
        abort();
    added->value = value;
    added->next = head;
    return added;
}

static int sum(struct node *head) {
    int total = 0;
    while (head) {
        total += head->value;
        head = head->next;
    }
    return total;
}

__attribute__((noinline)) void give_up(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(3);
}

__attribute__((noinline)) int checked(int number) {
    if (number < 0)
        give_up("negative");
    return digits(number);
}

__attribute__((noinline)) int depth(int number) {
    if (number <= 0)
        return 1;
    int below = depth(number - 1);
    return below + number % 2;
}

int (*volatile table[])(int) = {one, two, checked, depth};

int main(int count, char **arguments) {
    struct node *head = 0;
    for (int index = 0; index < 5; index++)
        head = push(head, two(index + count));
    int result = 0;
    for (unsigned index = 0; index < sizeof table / sizeof *table; index++)
        result += table[index](count + 40);
    printf("%d %d %s\n", sum(head), result, count > 10 ? arguments[1] : "-");
    return 0;
}
