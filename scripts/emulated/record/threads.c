// Threads that meet at the same functions at the same moment, again and again; each function is new to all of them.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "step.h"

enum { THREADS = 8, FUNCTIONS = 64 };
static pthread_barrier_t barrier;
static int sum;

#define MEET(n) __attribute__((noinline)) static void meet_##n(void) { __atomic_fetch_add(&sum, n, __ATOMIC_RELAXED); }
#define EIGHT(m, n) m(n##0) m(n##1) m(n##2) m(n##3) m(n##4) m(n##5) m(n##6) m(n##7)
#define ALL(m) EIGHT(m, 1) EIGHT(m, 2) EIGHT(m, 3) EIGHT(m, 4) EIGHT(m, 5) EIGHT(m, 6) EIGHT(m, 7) EIGHT(m, 8)
ALL(MEET)
#define NAME(n) meet_##n,
static void (*volatile functions[FUNCTIONS])(void) = {ALL(NAME)};

static void *run(void *argument) {
    for (int round = 0; round < FUNCTIONS; round++) {
        pthread_barrier_wait(&barrier);
        functions[round]();
    }
    return argument;
}
static void step_before(void) { STEP(); }
static void step_after(void) { STEP(); }

int main(void) {
    pthread_t threads[THREADS];
    step_before();
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    step_after();
    // Eight times the sum of 10…17, 20…27, …, 80…87.
    return sum == THREADS * 3104 ? 0 : 1;
}
