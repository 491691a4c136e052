/* A plugin for QEMU 7.2 (plugin API version 1): memory that takes time, and more time on far nodes.
 *
 * The emulator itself knows no caches and no distance: every load takes as long as the translated code. Here each
 * virtual processor gets a small cache of lines; a load or store of a user's program that misses it waits `near` or
 * `far` nanoseconds, as its physical address lies below or from `split` on. So a chase sees an edge and an order of
 * nodes. There is no prefetching, no write-back, no limit on bandwidth, and the kernel's own accesses take no time.
 *
 * Debian packages no header for plugins, so what is used of it is declared here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

typedef uint64_t plugin_id;
typedef uint32_t access_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
typedef struct qemu_info qemu_info;

enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, access_info, uint64_t, void *), int registers,
                                      int accesses, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(access_info, uint64_t vaddr);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);

#define EXPORT __attribute__((visibility("default")))
EXPORT extern int qemu_plugin_version;
EXPORT int qemu_plugin_install(plugin_id, const qemu_info *, int count, char **arguments);
int qemu_plugin_version = 1;

/* 512 sets of 8 lines of 64 bytes: 256 KiB for each virtual processor, which alone uses it. Lines go by their virtual
 * address, so that the cache's edge does not depend on which pages a program got. */
enum { PROCESSORS = 64, SETS = 512, WAYS = 8, LINE_BITS = 6 };
/* User space lies below this; the kernel above. */
static const uint64_t USER_END = 1ull << 47;

static uint64_t cached[PROCESSORS][SETS][WAYS];
static uint64_t split, wait_ticks[2];

/* Whether the line was there; it is the set's first afterwards. Lines are counted from 1, so that empty ways match none. */
static bool touch(uint64_t *set, uint64_t line) {
    int way = 0;
    while (way < WAYS - 1 && set[way] != line) way++;
    bool hit = set[way] == line;
    memmove(set + 1, set, way * sizeof *set);
    set[0] = line;
    return hit;
}

static void on_access(unsigned processor, access_info info, uint64_t vaddr, void *data) {
    (void)data;
    uint64_t line = vaddr >> LINE_BITS;
    if (touch(cached[processor % PROCESSORS][line % SETS], line + 1)) return;
    struct qemu_plugin_hwaddr *address = qemu_plugin_get_hwaddr(info, vaddr);
    if (!address || qemu_plugin_hwaddr_is_io(address)) return;
    uint64_t end = __rdtsc() + wait_ticks[qemu_plugin_hwaddr_phys_addr(address) >= split];
    while (__rdtsc() < end) _mm_pause();
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    if (qemu_plugin_tb_vaddr(block) >= USER_END) return;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), on_access, NO_REGISTERS, READS_AND_WRITES, NULL);
}

static double ticks_per_ns(void) {
    struct timespec start, now;
    double ns;
    clock_gettime(CLOCK_MONOTONIC, &start);
    uint64_t ticks = __rdtsc();
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
        ns = (now.tv_sec - start.tv_sec) * 1e9 + (now.tv_nsec - start.tv_nsec);
    } while (ns < 20e6);
    return (__rdtsc() - ticks) / ns;
}

/* `name=number` among the arguments; -1 without it. */
static double number(const char *name, int count, char **arguments) {
    size_t length = strlen(name);
    for (int i = 0; i < count; i++)
        if (!strncmp(arguments[i], name, length) && arguments[i][length] == '=')
            return (double)strtoull(arguments[i] + length + 1, NULL, 0);
    return -1;
}

int qemu_plugin_install(plugin_id id, const qemu_info *info, int count, char **arguments) {
    (void)info;
    double near = number("near", count, arguments), far = number("far", count, arguments);
    double boundary = number("split", count, arguments);
    if (near < 0 || far < 0 || boundary < 0) {
        fprintf(stderr, "node-latency: near=NS, far=NS and split=ADDRESS are needed\n");
        return 1;
    }
    split = (uint64_t)boundary;
    wait_ticks[0] = (uint64_t)(near * ticks_per_ns());
    wait_ticks[1] = (uint64_t)(far * ticks_per_ns());
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
