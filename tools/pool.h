/* pool.h - a small thread pool for the thread hook of tfm.h.
 *
 * The library never starts a thread: it hands its parallel loops to a hook
 *     void run(void *user, void (*fn)(void *arg, int index), void *arg, int n);
 * that calls fn(arg, i) once for each i in [0, n), in any order or at the same time, and returns when all are done.
 * pool_run is such a hook with a pool as `user`; pool.c is short and meant to be read as an example.
 */
#ifndef TOOLS_POOL_H
#define TOOLS_POOL_H

typedef struct pool pool;

/* A pool of `threads` threads, the caller's included (so threads - 1 are started). NULL if they cannot be. */
pool *pool_new(int threads);
void pool_free(pool *p); /* waits for the threads to end; NULL is fine */
int pool_threads(const pool *p);

/* The hook; user is a pool, or NULL to run everything in the caller's thread. Thread i, 0 being the caller's, takes
 * indices i, i + threads, i + 2 * threads ... and then those that others have not come to yet. One call at a time: a
 * pool belongs to the thread that calls it. */
void pool_run(void *user, void (*fn)(void *arg, int index), void *arg, int n);

#endif
