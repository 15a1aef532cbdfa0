/* pool.c - a thread pool small enough to copy into a program of your own.
 *
 * A forward pass hands over a few hundred small loops per token, each some microseconds long, so starting and ending
 * one must cost next to nothing. Every worker has a ticket of its own: the caller writes the next number on it and the
 * worker, which has been spinning on it for up to 50 microseconds since its last piece of work, starts within the time
 * a cache line takes to move. Only a worker that found nothing to do for longer sleeps on a condition variable. The
 * caller waits for the others in the same way.
 *
 * Why no wake-up is lost: the one that goes to sleep first says so (`sleeping`) and then looks at the number once
 * more; the one that changes the number does that first and then looks whether somebody sleeps. These four accesses
 * are sequentially consistent, so at least one of the two sees the other's, and the mutex does the rest.
 */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#endif

#include "pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

/* ---- threads and atomics of the system ------------------------------------------------------------------------- */

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef HANDLE thread_handle;
typedef SRWLOCK mutex;
typedef CONDITION_VARIABLE condition;
#define THREAD_RESULT DWORD WINAPI
static int mutex_init(mutex *m) { InitializeSRWLock(m); return 0; }
static int condition_init(condition *c) { InitializeConditionVariable(c); return 0; }
static void mutex_lock(mutex *m) { AcquireSRWLockExclusive(m); }
static void mutex_unlock(mutex *m) { ReleaseSRWLockExclusive(m); }
static void condition_wait(condition *c, mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
static void condition_signal(condition *c) { WakeConditionVariable(c); }
static void mutex_destroy(mutex *m) { (void)m; }
static void condition_destroy(condition *c) { (void)c; }
static int thread_start(thread_handle *t, DWORD (WINAPI *main)(void *), void *arg)
{
    *t = CreateThread(NULL, 0, main, arg, 0, NULL);
    return *t != NULL ? 0 : -1;
}
static void thread_join(thread_handle t)
{
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
#else
#include <pthread.h>
typedef pthread_t thread_handle;
typedef pthread_mutex_t mutex;
typedef pthread_cond_t condition;
#define THREAD_RESULT void *
static int mutex_init(mutex *m) { return pthread_mutex_init(m, NULL); }
static int condition_init(condition *c) { return pthread_cond_init(c, NULL); }
static void mutex_lock(mutex *m) { pthread_mutex_lock(m); }
static void mutex_unlock(mutex *m) { pthread_mutex_unlock(m); }
static void condition_wait(condition *c, mutex *m) { pthread_cond_wait(c, m); }
static void condition_signal(condition *c) { pthread_cond_signal(c); }
static void mutex_destroy(mutex *m) { pthread_mutex_destroy(m); }
static void condition_destroy(condition *c) { pthread_cond_destroy(c); }
static int thread_start(thread_handle *t, void *(*main)(void *), void *arg)
{
    return pthread_create(t, NULL, main, arg);
}
static void thread_join(thread_handle t)
{
    pthread_join(t, NULL);
}
#endif

#if defined(__GNUC__)
#define HAVE_ATOMICS 1
typedef uint32_t atomic_u32;
static uint32_t atomic_get(const atomic_u32 *x) { return __atomic_load_n(x, __ATOMIC_SEQ_CST); }
/* An exchange: qemu lets a load pass a sequentially consistent store of AArch64 before it (stlr, ldar). */
static void atomic_set(atomic_u32 *x, uint32_t value) { (void)__atomic_exchange_n(x, value, __ATOMIC_SEQ_CST); }
static uint32_t atomic_add(atomic_u32 *x, uint32_t n) { return __atomic_add_fetch(x, n, __ATOMIC_SEQ_CST); }
#elif defined(_MSC_VER)
#define HAVE_ATOMICS 1
typedef volatile LONG atomic_u32;
static uint32_t atomic_get(atomic_u32 *x) { return (uint32_t)InterlockedCompareExchange(x, 0, 0); }
static void atomic_set(atomic_u32 *x, uint32_t value) { InterlockedExchange(x, (LONG)value); }
static uint32_t atomic_add(atomic_u32 *x, uint32_t n) { return (uint32_t)InterlockedExchangeAdd(x, (LONG)n) + n; }
#else /* the pool then has one thread, the caller's */
#define HAVE_ATOMICS 0
typedef uint32_t atomic_u32;
static uint32_t atomic_get(const atomic_u32 *x) { return *x; }
static void atomic_set(atomic_u32 *x, uint32_t value) { *x = value; }
static uint32_t atomic_add(atomic_u32 *x, uint32_t n) { return *x += n; }
#endif

/* Tells the processor that this is a loop that waits. */
static void spin_pause(void)
{
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#elif defined(__GNUC__) && (defined(__aarch64__) || (defined(__ARM_ARCH) && __ARM_ARCH >= 7))
    __asm__ volatile("yield");
#elif defined(_MSC_VER)
    YieldProcessor();
#endif
}

/* ---- waiting for a number to change ---------------------------------------------------------------------------- */

static const double SPIN_SECONDS = 50e-6;

typedef struct gate {
    atomic_u32 number;   /* what is waited for */
    atomic_u32 sleeping; /* the one that waits may be in condition_wait */
    mutex lock;
    condition changed;
    char padding[64];    /* the next gate's number is not on this one's cache line */
} gate;

static int gate_init(gate *g)
{
    if (mutex_init(&g->lock) != 0) return -1;
    if (condition_init(&g->changed) == 0) return 0;
    mutex_destroy(&g->lock);
    return -1;
}

static void gate_destroy(gate *g)
{
    condition_destroy(&g->changed);
    mutex_destroy(&g->lock);
}

/* Wakes the one that sleeps at the gate, if it does, after the number has changed. */
static void gate_wake(gate *g)
{
    if (!atomic_get(&g->sleeping)) return;
    mutex_lock(&g->lock);
    condition_signal(&g->changed);
    mutex_unlock(&g->lock);
}

/* Returns when (number == value) is `equal`: spins for a while, then sleeps. */
static void gate_wait(gate *g, uint32_t value, int equal, int may_spin)
{
    double until = 0;
    int i = 0;
    while (may_spin && (atomic_get(&g->number) == value) != equal) {
        spin_pause();
        if (++i % 64 != 0) continue; /* the clock costs more than a pause */
        if (until == 0) until = time_now() + SPIN_SECONDS;
        if (time_now() > until) break;
    }
    if ((atomic_get(&g->number) == value) == equal) return;
    mutex_lock(&g->lock);
    atomic_set(&g->sleeping, 1);
    while ((atomic_get(&g->number) == value) != equal) condition_wait(&g->changed, &g->lock);
    atomic_set(&g->sleeping, 0);
    mutex_unlock(&g->lock);
}

/* ---- the pool -------------------------------------------------------------------------------------------------- */

typedef struct worker {
    gate ticket;      /* its number changes when there is work */
    atomic_u32 taken; /* of the indices i with i % n_threads == index, so many are taken */
    pool *owner;
    int index;
    thread_handle thread;
} worker;

struct pool {
    int n_threads; /* the caller's included; workers[0] has no thread */
    int may_spin;
    gate busy;     /* number: workers that have not finished */
    void (*fn)(void *arg, int index); /* the work in hand; NULL ends a worker */
    void *arg;
    int n;
    worker *workers;
};

/* The thread's own indices, then what is left of others'. */
static void run_share(pool *p, int index)
{
    uint32_t n = (uint32_t)p->n, threads = (uint32_t)p->n_threads, turn, whose, i;
    for (turn = 0; turn < threads; turn++) {
        whose = ((uint32_t)index + turn) % threads;
        while ((i = whose + threads * (atomic_add(&p->workers[whose].taken, 1) - 1)) < n) p->fn(p->arg, (int)i);
    }
}

static THREAD_RESULT worker_main(void *user)
{
    worker *w = (worker *)user;
    pool *p = w->owner;
    uint32_t seen = 0;
    for (;;) {
        gate_wait(&w->ticket, seen, 0, p->may_spin);
        seen++; /* the caller writes the next number only after this round has ended */
        if (p->fn == NULL) return 0;
        run_share(p, w->index);
        if (atomic_add(&p->busy.number, (uint32_t)-1) == 0) gate_wake(&p->busy);
    }
}

static void hand_out(worker *w)
{
    atomic_set(&w->ticket.number, atomic_get(&w->ticket.number) + 1);
    gate_wake(&w->ticket);
}

static int worker_start(pool *p, int index)
{
    worker *w = &p->workers[index];
    w->owner = p;
    w->index = index;
    if (gate_init(&w->ticket) != 0) return -1;
    if (thread_start(&w->thread, worker_main, w) == 0) return 0;
    gate_destroy(&w->ticket);
    return -1;
}

pool *pool_new(int threads)
{
    pool *p;
    if (threads < 1) return NULL;
    if (!HAVE_ATOMICS) threads = 1;
    p = (pool *)calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->workers = (worker *)calloc((size_t)threads, sizeof *p->workers);
    if (p->workers == NULL || gate_init(&p->busy) != 0) {
        free(p->workers);
        free(p);
        return NULL;
    }
    p->may_spin = threads <= cpu_count(); /* else a spinning thread keeps a working one off its processor */
    for (p->n_threads = 1; p->n_threads < threads; p->n_threads++) {
        if (worker_start(p, p->n_threads) == 0) continue;
        pool_free(p);
        return NULL;
    }
    return p;
}

void pool_free(pool *p)
{
    int i;
    if (p == NULL) return;
    p->fn = NULL;
    for (i = 1; i < p->n_threads; i++) hand_out(&p->workers[i]);
    for (i = 1; i < p->n_threads; i++) {
        thread_join(p->workers[i].thread);
        gate_destroy(&p->workers[i].ticket);
    }
    gate_destroy(&p->busy);
    free(p->workers);
    free(p);
}

int pool_threads(const pool *p)
{
    return p != NULL ? p->n_threads : 1;
}

void pool_run(void *user, void (*fn)(void *arg, int index), void *arg, int n)
{
    pool *p = (pool *)user;
    int i, others = p == NULL ? 0 : (n < p->n_threads ? n : p->n_threads) - 1;
    if (others < 1) {
        for (i = 0; i < n; i++) fn(arg, i);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    for (i = 0; i < p->n_threads; i++) atomic_set(&p->workers[i].taken, 0);
    atomic_set(&p->busy.number, (uint32_t)others);
    for (i = 1; i <= others; i++) hand_out(&p->workers[i]);
    run_share(p, 0);
    gate_wait(&p->busy, 0, 1, p->may_spin);
}
