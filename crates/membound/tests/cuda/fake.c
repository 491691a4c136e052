/* CUDA's driver with a device of its own, for tests: memory of the device's and of the host's are both the host's, so that
   copies are memcpy and kernels are C, found by their names. What is pinned or registered the device sees at another address than the
   host, as NVIDIA says of memory that is write-combined or registered; a kernel that is given the host's ends the context, after which
   nothing works. Managed memory is a file in memory: after each touch by the device its
   pages leave the page table, so that the host's next touch makes a page fault, as it does with a real one. FAKE_CUDA chooses a
   fault ("stale": of what a program writes to memory of the device's nothing but the first arrives); FAKE_CUDA_LOG names a file that gets a line whenever more pieces of memory live than ever before. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 64, DEVICES = 10, PEERS_MOST = 8, KIND_DEVICE, KIND_PINNED, KIND_REGISTERED, KIND_MANAGED };
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_PTX = 218, TOO_MANY_PEERS = 711, LAUNCH_FAILED = 719, MISMATCH = 803 };
enum { NOT_FOUND = 500, INVALID_CONTEXT = 201, ILLEGAL_ADDRESS = 700 };

/* From the host's address of what is pinned or registered to the device's: no address of a program's lies there. */
static const uint64_t APART = 1ull << 60;

static struct piece { char *at; size_t bytes; int kind, context, writes; unsigned flags; } pieces[MOST];
static int contexts[DEVICES], is_ready, is_void;
static __thread uintptr_t current;

static int is(const char *mode) {
    const char *asked = getenv("FAKE_CUDA");
    return asked && !strcmp(asked, mode);
}

/* What a driver notices: calls before cuInit, without a context, and after a kernel has ended it. */
static int guard(void) { return !is_ready ? 3 : is_void ? ILLEGAL_ADDRESS : !current ? INVALID_CONTEXT : 0; }
#define GUARD do { int fault = guard(); if (fault) return fault; } while (0)

static void live(int change) {
    static int now, most;
    const char *path = getenv("FAKE_CUDA_LOG");
    now += change;
    if (now <= most || !path) return;
    most = now;
    FILE *log = fopen(path, "a");
    if (log) { fprintf(log, "%d\n", most); fclose(log); }
}

static int keep(void *at, size_t bytes, int kind, unsigned flags) {
    for (int i = 0; i < MOST; i++) {
        if (pieces[i].at) continue;
        pieces[i] = (struct piece){at, bytes, kind, (int)current, 0, flags};
        live(1);
        return 0;
    }
    return OUT_OF_MEMORY;
}

/* By the host's address or the device's. */
static struct piece *find(uint64_t at) {
    uint64_t on_host = at & ~APART;
    for (int i = 0; i < MOST; i++) {
        char *start = pieces[i].at;
        if (start && on_host >= (uint64_t)start && on_host < (uint64_t)start + pieces[i].bytes) return &pieces[i];
    }
    return NULL;
}

static int drop(uint64_t at, int kind) {
    struct piece *piece = find(at);
    if (!piece || (uint64_t)piece->at != at || piece->kind != kind) return INVALID_VALUE;
    piece->at = NULL;
    live(-1);
    return 0;
}

/* The device has touched these addresses: what is managed is with it now, unless it was told to stay. */
static void touched(uint64_t at) {
    struct piece *piece = find(at);
    if (piece && piece->kind == KIND_MANAGED && !piece->flags) madvise(piece->at, piece->bytes, MADV_DONTNEED);
}

/* Where so many bytes lie; nothing where a piece of memory has not so many. */
static void *place(uint64_t at, uint64_t bytes) {
    struct piece *piece = find(at);
    uint64_t on_host = at & ~APART;
    return piece && on_host + bytes <= (uint64_t)piece->at + piece->bytes ? (void *)on_host : NULL;
}

/* The same by the device's address alone, for its kernels. */
static void *reached(uint64_t at, uint64_t bytes) {
    struct piece *piece = find(at);
    int is_apart = piece && (piece->kind == KIND_PINNED || piece->kind == KIND_REGISTERED);
    return is_apart == !!(at & APART) ? place(at, bytes) : NULL;
}

int cuInit(unsigned flags) {
    while (is("hang")) pause();
    if (is("crash")) abort();
    if (is("no-device")) return NO_DEVICE;
    if (is("mismatch")) return MISMATCH;
    is_ready = 1;
    return 0;
}

#ifndef TOO_OLD
int cuMemPrefetchAsync(uint64_t at, size_t bytes, int device, uintptr_t stream) {
    GUARD;
    struct piece *piece = find(at);
    if (!piece || piece->kind != KIND_MANAGED) return INVALID_VALUE;
    if (device >= 0) touched(at);
    return 0;
}
#endif

int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = is("two") ? 2 : is("ten") ? DEVICES : 1; return is_ready ? 0 : 3; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1 << 30; return 0; }

int cuDeviceGetName(char *to, int room, int device) {
    snprintf(to, room, "Fake GPU %d", device);
    return 0;
}

int cuDeviceGetPCIBusId(char *to, int room, int device) {
    snprintf(to, room, "0000:%02X:00.0", 0x3b + device);
    return 0;
}

int cuDeviceGetAttribute(int *value, int what, int device) {
    switch (what) {
    case 16: *value = 8; return 0;
    case 19: *value = !is("poor"); return 0;
    case 36: *value = 5000000; return 0;
    case 37: *value = 384; return 0;
    case 41: *value = 1; return 0;
    case 75: *value = 9; return 0;
    case 83: *value = !is("poor"); return 0;
    case 89: *value = !is("poor") && !is("old"); return 0;
    case 99: *value = !is("poor"); return 0;
    }
    *value = 0;
    return 0;
}

int cuDevicePrimaryCtxRetain(uintptr_t *context, int device) {
    contexts[device]++;
    *context = device + 1;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return contexts[device]-- > 0 ? 0 : INVALID_CONTEXT; }
int cuCtxSetCurrent(uintptr_t context) { current = context; return 0; }
int cuDeviceCanAccessPeer(int *can, int device, int peer) { *can = !is("apart"); return 0; }

/* Which context reaches which; context 0 is none. */
static char reaches[DEVICES + 1][DEVICES + 1];

int cuCtxEnablePeerAccess(uintptr_t context, unsigned flags) {
    int peers = 0;
    GUARD;
    if (reaches[current][context]) return 704;
    for (int i = 1; i <= DEVICES; i++) peers += reaches[current][i];
    if (peers == PEERS_MOST) return TOO_MANY_PEERS;
    reaches[current][context] = 1;
    return 0;
}

int cuCtxDisablePeerAccess(uintptr_t context) {
    GUARD;
    if (!reaches[current][context]) return 705;
    reaches[current][context] = 0;
    return 0;
}

int cuStreamCreate(uintptr_t *stream, unsigned flags) { GUARD; *stream = current; return 0; }
int cuStreamDestroy_v2(uintptr_t stream) { return 0; }

/* Lost in the middle: the copy or kernel before was given, and never ends well. */
int cuStreamSynchronize(uintptr_t stream) {
    static int finished;
    GUARD;
    return is("lost") && ++finished > 40 ? LAUNCH_FAILED : 0;
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    GUARD;
    if (is("memory") && bytes > 4096) return OUT_OF_MEMORY;
    void *made = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    *at = (uint64_t)made;
    return keep(made, bytes, KIND_DEVICE, 0);
}

int cuMemFree_v2(uint64_t at) {
    struct piece *piece = find(at);
    if (piece && piece->kind == KIND_MANAGED) munmap(piece->at, piece->bytes);
    else if (piece) free(piece->at);
    return drop(at, piece ? piece->kind : 0);
}

int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    GUARD;
    if (is("no-pinning")) return OUT_OF_MEMORY;
    *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return keep(*at, bytes, KIND_PINNED, flags);
}

int cuMemFreeHost(void *at) {
    int fault = drop((uint64_t)at, KIND_PINNED);
    if (!fault) free(at);
    return fault;
}

int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) { GUARD; return keep(at, bytes, KIND_REGISTERED, flags); }
int cuMemHostUnregister(void *at) { return drop((uint64_t)at, KIND_REGISTERED); }

int cuMemHostGetDevicePointer_v2(uint64_t *to, void *at, unsigned flags) {
    struct piece *piece = find((uint64_t)at);
    if (!piece) return INVALID_VALUE;
    *to = (uint64_t)at | APART;
    return 0;
}

int cuMemAllocManaged(uint64_t *at, size_t bytes, unsigned flags) {
    GUARD;
    int file = memfd_create("managed", 0);
    if (file < 0 || ftruncate(file, bytes)) return OUT_OF_MEMORY;
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (made == MAP_FAILED) return OUT_OF_MEMORY;
    *at = (uint64_t)made;
    return keep(made, bytes, KIND_MANAGED, 0);
}

int cuMemAdvise(uint64_t at, size_t bytes, int advice, int device) {
    GUARD;
    struct piece *piece = find(at);
    if (!piece || piece->kind != KIND_MANAGED) return INVALID_VALUE;
    piece->flags |= advice == 3 && device == -1;
    return 0;
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, uintptr_t stream) {
    GUARD;
    if ((find(to) && !place(to, bytes)) || (find(from) && !place(from, bytes))) return INVALID_VALUE;
    struct piece *sink = find(to);
    if (is("stale") && sink && !find(from) && sink->writes++) return 0;
    memcpy((void *)(to & ~APART), (const void *)(from & ~APART), is("wrong") && bytes > 8 ? bytes - 8 : bytes);
    touched(to);
    touched(from);
    return 0;
}

int cuMemcpyPeerAsync(uint64_t to, uintptr_t there, uint64_t from, uintptr_t here, size_t bytes, uintptr_t stream) {
    struct piece *sink = find(to), *source = find(from);
    GUARD;
    if (!sink || !source || sink->context != (int)there || source->context != (int)here) return INVALID_VALUE;
    memcpy((void *)to, (const void *)from, bytes);
    return 0;
}

static const char *NAMES[] = {"copy", "scale", "add", "triad", "words", "put", "chase"};

int cuModuleLoadDataEx(uintptr_t *module, const char *text, unsigned count, int *options, void **values) {
    GUARD;
    if (is("no-compiler")) {
        for (unsigned i = 0; i < count; i++) if (options[i] == 5) strcpy(values[i], "line 1: no\n");
        return INVALID_PTX;
    }
    *module = (uintptr_t)text;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char entry[32];
        snprintf(entry, sizeof entry, ".entry %s(", NAMES[i]);
        if (!strstr(text, entry)) return INVALID_PTX;
    }
    return 0;
}

int cuModuleUnload(uintptr_t module) { return 0; }

int cuModuleGetFunction(uintptr_t *function, uintptr_t module, const char *name) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strcmp(name, NAMES[i])) { *function = i; return 0; }
    return NOT_FOUND;
}

/* What a kernel did to memory that it may not touch, nothing comes after. */
static int illegal(void) {
    is_void = 1;
    return ILLEGAL_ADDRESS;
}

int cuLaunchKernel(uintptr_t function, unsigned groups, unsigned gy, unsigned gz, unsigned group, unsigned by, unsigned bz,
                   unsigned shared, uintptr_t stream, void **arguments, void **extra) {
    uint64_t word[5], threads = (uint64_t)groups * group;
    const char *name = NAMES[function];
    int is_stream = function < 4, words = is_stream ? 5 : function == 4 ? 3 : 2;
    GUARD;
    for (int i = 0; i < words; i++) memcpy(&word[i], arguments[i], 8);
    if (!strcmp(name, "put")) {
        uint64_t *to = reached(word[0], 8);
        if (!to) return illegal();
        *to = word[1];
    } else if (!strcmp(name, "words")) {
        void *to = reached(word[0], 8 * word[2]), *from = reached(word[1], 8 * word[2]);
        if (threads < word[2] || !to || !from) return illegal();
        memcpy(to, from, 8 * word[2]);
    } else if (!strcmp(name, "chase")) {
        uint64_t *at = reached(word[0], 8), *next;
        for (uint64_t link = 0; at && link < 8 * word[1]; link++) {
            if (!(next = reached(*at, 8))) return illegal();
            *at = *next;
        }
        if (!at) return illegal();
    } else {
        double *array[3], s;
        memcpy(&s, &word[3], 8);
        /* Copy and scale: pairs. */
        const uint64_t elements = function < 2 ? 2 * word[4] : word[4];
        for (int i = 0; i < 3; i++) if (!(array[i] = reached(word[i], 8 * elements))) return illegal();
        if (threads < word[4]) return illegal();
        /* copy, scale, add, triad: how much of b and of c. */
        const double of_b = function == 1 ? s : 1, of_c = function == 2 ? 1 : function == 3 ? s : 0;
        const double off = is("wrong") && function == 3;
        for (uint64_t i = 0; i < elements; i++) array[0][i] = of_b * array[1][i] + of_c * array[2][i] + off;
    }
    touched(word[0]);
    if (words > 2) touched(word[1]);
    return 0;
}
