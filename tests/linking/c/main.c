#include <stdio.h>

int first_one(int), first_two(int), first_never(int);
int second_one(int), second_two(int), second_never(int);

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 5) return first_never(count) + second_never(count);
    printf("%d %d %d %d\n", second_two(count), first_two(count), second_one(count), first_one(count));
    return 0;
}
