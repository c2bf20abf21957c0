/* Memory to pack matrices into: borrowed for one product, and kept for the next.
 *
 * It is asked for in pages of 2 MB, where the system has them. The processor remembers the addresses of some hundred
 * pages only, and a packed block in pages of 4 kB takes most of them: with large pages, products of 2048 x 2048 take a
 * tenth less time. Fresh pages are also filled with zeros first, so giving them back after each product would be dear.
 */
#include "kernels.h"

#define LARGE_PAGE ((size_t)2 << 20)
#define HEADER ((size_t)4096) /* what the owner knows stands before what is lent */

struct workspace {
    size_t size; /* of the whole */
    void *start; /* what was asked of the system, and how much */
    size_t asked;
};
static struct workspace *spare; /* one at most; whoever takes it leaves NULL, so no two threads ever have the same */

#if defined(__linux__)
#include <sys/mman.h>

static void *ask(size_t size)
{
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}
static void prefer_large_pages(void *start, size_t size)
{
#ifdef MADV_HUGEPAGE
    madvise(start, size, MADV_HUGEPAGE); /* where it fails, small pages do */
#endif
}
static void give_up(struct workspace *x) { munmap(x->start, x->asked); }
#else
static void *ask(size_t size) { return malloc(size); }
static void prefer_large_pages(void *start, size_t size) { (void)start, (void)size; }
static void give_up(struct workspace *x) { free(x->start); }
#endif

/* Lend `size` bytes, aligned to a page; NULL if there are none. */
void *minidist_borrow(size_t size)
{
    struct workspace *x = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQ_REL);
    if (x && x->size >= size + HEADER) return (char *)x + HEADER;
    if (x) give_up(x);
    const size_t whole = (size + HEADER + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE, asked = whole + LARGE_PAGE;
    char *start = ask(asked);
    if (!start) return NULL;
    x = (struct workspace *)(((uintptr_t)start + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1));
    prefer_large_pages(x, whole);
    *x = (struct workspace){whole, start, asked};
    return (char *)x + HEADER;
}

/* Take back what was lent. If another was kept in the meantime, that one goes: one spare is enough. */
void minidist_give_back(void *lent)
{
    struct workspace *x = (struct workspace *)((char *)lent - HEADER);
    x = __atomic_exchange_n(&spare, x, __ATOMIC_ACQ_REL);
    if (x) give_up(x);
}
