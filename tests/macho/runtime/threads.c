/* One thread: locks are always free, new threads cannot be had. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The emulator fills these in. */
uintptr_t host_stack_top, host_stack_size;

#define FREE(name, ...) \
  int name(__VA_ARGS__) { return 0; }

FREE(pthread_mutex_init, pthread_mutex_t *lock, const pthread_mutexattr_t *kind)
FREE(pthread_mutex_destroy, pthread_mutex_t *lock)
FREE(pthread_mutex_lock, pthread_mutex_t *lock)
FREE(pthread_mutex_trylock, pthread_mutex_t *lock)
FREE(pthread_mutex_unlock, pthread_mutex_t *lock)
FREE(pthread_mutexattr_init, pthread_mutexattr_t *kind)
FREE(pthread_mutexattr_settype, pthread_mutexattr_t *kind, int type)
FREE(pthread_mutexattr_destroy, pthread_mutexattr_t *kind)
FREE(pthread_rwlock_rdlock, pthread_rwlock_t *lock)
FREE(pthread_rwlock_wrlock, pthread_rwlock_t *lock)
FREE(pthread_rwlock_unlock, pthread_rwlock_t *lock)
FREE(pthread_cond_init, pthread_cond_t *restrict condition, const pthread_condattr_t *restrict kind)
FREE(pthread_cond_destroy, pthread_cond_t *condition)
FREE(pthread_cond_signal, pthread_cond_t *condition)
FREE(pthread_cond_broadcast, pthread_cond_t *condition)
FREE(pthread_cond_wait, pthread_cond_t *restrict condition, pthread_mutex_t *restrict lock)
FREE(pthread_attr_init, pthread_attr_t *wanted)
FREE(pthread_attr_destroy, pthread_attr_t *wanted)
FREE(pthread_attr_setstacksize, pthread_attr_t *wanted, size_t size)
FREE(pthread_attr_setdetachstate, pthread_attr_t *wanted, int state)
FREE(pthread_detach, pthread_t thread)
FREE(pthread_setname_np, const char *name)
FREE(sched_yield, void)

int pthread_create(pthread_t *restrict out, const pthread_attr_t *restrict wanted, void *(*start)(void *),
                   void *restrict argument) {
  return (void)out, (void)wanted, (void)start, (void)argument, EAGAIN;
}
int pthread_join(pthread_t thread, void **out) { return (void)thread, (void)out, ESRCH; }

static struct _opaque_pthread_t main_thread;
pthread_t pthread_self(void) { return &main_thread; }
pthread_t pthread_main_thread_np(void) { return &main_thread; }
int pthread_equal(pthread_t left, pthread_t right) { return left == right; }
int pthread_main_np(void) { return 1; }
int pthread_threadid_np(pthread_t thread, uint64_t *out) { return (void)thread, *out = 1, 0; }
void *pthread_get_stackaddr_np(pthread_t thread) { return (void)thread, (void *)host_stack_top; }
size_t pthread_get_stacksize_np(pthread_t thread) { return (void)thread, host_stack_size; }

static void *values[512];
static pthread_key_t next_key = 1;
int pthread_key_create(pthread_key_t *out, void (*destroy)(void *)) {
  (void)destroy;
  if (next_key == sizeof values / sizeof *values) return EAGAIN;
  *out = next_key++;
  return 0;
}
int pthread_key_delete(pthread_key_t key) { return (void)key, 0; }
void *pthread_getspecific(pthread_key_t key) { return values[key]; }
int pthread_setspecific(pthread_key_t key, const void *value) { return values[key] = (void *)value, 0; }

/* Programs may initialise the structure with zeros or with the signature of PTHREAD_ONCE_INIT: remember by address. */
int pthread_once(pthread_once_t *control, void (*call)(void)) {
  if (control->__sig == 0x1ce) return 0;
  control->__sig = 0x1ce;
  call();
  return 0;
}

void os_unfair_lock_lock(void *lock) { (void)lock; }
void os_unfair_lock_unlock(void *lock) { (void)lock; }
bool os_unfair_lock_trylock(void *lock) { return (void)lock, true; }

/* A semaphore only has to exist: with one thread there are no waiters. */
void *dispatch_semaphore_create(long value) {
  static long semaphore;
  return (void)value, &semaphore;
}
uint64_t dispatch_time(uint64_t when, int64_t delta) { return (void)when, (uint64_t)delta; }
