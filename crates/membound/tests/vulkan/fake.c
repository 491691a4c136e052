/* Vulkan's loader with a device of its own, for tests: memory of the device's, and of the host's beside it where a type is not
   coherent, so that what is not flushed or invalidated is not seen. It checks what is handed to it as a driver would that aborts:
   sizes, types, states of command buffers and fences. FAKE_VULKAN chooses a fault ("stale": nothing but the first flush of a piece of
   memory does anything; "no-wait": a command can't be waited for, and may run for ever); FAKE_VULKAN_LOG names a file that gets a line
   whenever more pieces of memory live than ever before. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NO_HOST_MEMORY = -1, NO_DEVICE_MEMORY = -2, DEVICE_LOST = -4, MAP_FAILED = -5, INCOMPATIBLE_DRIVER = -9, MOST = 4 };
enum { LOCAL = 1, VISIBLE = 2, COHERENT = 4, CACHED = 8, DEVICE_COHERENT = 64 };
enum { TRANSFER_SRC = 1, TRANSFER_DST = 2 };
/* sType of each structure that is handed in. */
enum { INSTANCE_INFO = 1, QUEUE_INFO = 2, DEVICE_INFO = 3, SUBMIT_INFO = 4, ALLOCATE_INFO = 5, RANGE = 6, FENCE_INFO = 8,
       BUFFER_INFO = 12, POOL_INFO = 39, COMMANDS_INFO = 40, BEGIN_INFO = 42, MEMORY_BARRIER = 46,
       PCI_INFO = 1000212000, DRIVER_INFO = 1000196000, LIMITS_INFO = 1000168000, PROPERTIES_2 = 1000059001 };

typedef struct { uint32_t type; const void *next; } head;
typedef struct { size_t bytes; int kind, is_mapped, flushes; char *device, *host; } memory;
typedef struct { size_t bytes; int is_shared; memory *in; } buffer;
typedef struct { buffer *from, *to; uint64_t bytes, word; int state, barriers, family; } commands; /* 0 new, 1 recording, 2 done */
typedef struct { int is_set; } fence;

#define MUST(what) do { if (!(what)) { fprintf(stderr, "fake vulkan: %s: not %s\n", __func__, #what); abort(); } } while (0)

static int is(const char *mode) {
    const char *asked = getenv("FAKE_VULKAN");
    return asked && !strcmp(asked, mode);
}

/* Whether a command runs that nobody can wait for: then nothing may be given back. */
static int runs_for_ever;

static void live(int change) {
    static int now, most;
    const char *path = getenv("FAKE_VULKAN_LOG");
    now += change;
    if (now <= most || !path) return;
    most = now;
    FILE *log = fopen(path, "a");
    if (log) { fprintf(log, "%d\n", most); fclose(log); }
}

/* Types of a card: other, its own, the host's write-combined, the same again, the host's cached and not coherent, the host's cached,
   its own that the host maps, and one that takes a feature. */
static const uint32_t TYPES[] = {0, LOCAL, VISIBLE | COHERENT, VISIBLE | COHERENT, VISIBLE | CACHED, VISIBLE | COHERENT | CACHED,
                                 LOCAL | VISIBLE | COHERENT, VISIBLE | COHERENT | DEVICE_COHERENT};
enum { COUNT = sizeof TYPES / sizeof *TYPES };

/* What lists does it in two calls. */
static int list(uint32_t have, uint32_t *count, void *to) {
    int result = to && *count < have ? 5 : SUCCESS;
    *count = to && *count < have ? *count : have;
    return result;
}

int vkCreateInstance(const head *info, void *allocator, uintptr_t *instance) {
    MUST(info->type == INSTANCE_INFO);
    while (is("hang")) pause();
    if (is("crash")) abort();
    *instance = 1;
    return is("no-driver") ? INCOMPATIBLE_DRIVER : SUCCESS;
}

int vkEnumeratePhysicalDevices(uintptr_t instance, uint32_t *count, uintptr_t *to) {
    uint32_t have = is("no-device") ? 0 : is("two") ? 2 : 1;
    int result = list(have, count, to);
    for (uint32_t i = 0; to && i < *count; i++) to[i] = i + 1;
    return result;
}

int vkEnumerateDeviceExtensionProperties(uintptr_t device, const char *layer, uint32_t *count, char (*to)[260]) {
    static const char *NAMES[] = {"VK_EXT_pci_bus_info", "VK_KHR_driver_properties"};
    int result = list(is("silent") ? 0 : 2, count, to);
    for (uint32_t i = 0; to && i < *count; i++) { memset(to[i], 0, 260); strcpy(to[i], NAMES[i]); }
    return result;
}

#ifndef TOO_OLD
typedef struct { head head; uint32_t api, driver, vendor, id, kind; char name[256]; } properties;

void vkGetPhysicalDeviceProperties2(uintptr_t device, properties *to) {
    MUST(to->head.type == PROPERTIES_2);
    to->api = 1 << 22 | 2 << 12 | 99;
    to->kind = 2;
    snprintf(to->name, 256, "Fake card %d", (int)device - 1);
    for (head *next = (head *)to->head.next; next; next = (head *)next->next) {
        char *at = (char *)next + 16;
        if (next->type == PCI_INFO) memcpy(at, (uint32_t[]){0, 0x3b + device - 1, 0, 1}, 16);
        else if (next->type == DRIVER_INFO) { strcpy(at + 4, "fake"); strcpy(at + 4 + 256, "7.8"); }
        else if (next->type == LIMITS_INFO) *(uint64_t *)(at + 8) = 1 << 29;
        else MUST(!"a structure that it knows");
    }
}
#endif

typedef struct { uint32_t count; struct { uint32_t flags, heap; } types[32]; uint32_t heaps; struct { uint64_t bytes; uint32_t flags; } heap[16]; } memories;

void vkGetPhysicalDeviceMemoryProperties(uintptr_t device, memories *to) {
    memset(to, 0, sizeof *to);
    to->count = COUNT;
    for (int i = 0; i < COUNT; i++) { to->types[i].flags = TYPES[i]; to->types[i].heap = !(TYPES[i] & LOCAL); }
    to->heaps = 2;
    to->heap[0].bytes = 1 << 30;
    to->heap[0].flags = 1;
    to->heap[1].bytes = 1ull << 32;
}

/* Graphics, compute and copies; copies alone. Copies within the card are for the first, all others for the second. */
enum { COMPUTES, COPIES };

void vkGetPhysicalDeviceQueueFamilyProperties(uintptr_t device, uint32_t *count, uint32_t (*to)[6]) {
    list(2, count, to);
    if (!to) return;
    memset(to, 0, *count * sizeof *to);
    to[0][0] = 7; to[0][1] = is("one-queue") ? 1 : 3;
    if (*count > 1) { to[1][0] = is("one-queue") ? 32 : 4; to[1][1] = 2; }
}

typedef struct { head head; uint32_t flags, count; struct { head head; uint32_t flags, family, queues; const float *priorities; } *queues; } device_info;

int vkCreateDevice(uintptr_t physical, const device_info *info, void *allocator, uintptr_t *device) {
    MUST(info->head.type == DEVICE_INFO && info->count == (is("one-queue") ? 1 : 2));
    for (uint32_t i = 0; i < info->count; i++) {
        int family = info->queues[i].family;
        MUST(info->queues[i].head.type == QUEUE_INFO && (i || family == (is("one-queue") ? COMPUTES : COPIES)));
        MUST((!i || family == COMPUTES) && info->queues[i].queues == (is("one-queue") ? 1 : 2));
    }
    *device = physical;
    return SUCCESS;
}

void vkDestroyDevice(uintptr_t device, void *allocator) { MUST(!runs_for_ever); }

void vkGetDeviceQueue(uintptr_t device, uint32_t family, uint32_t number, uintptr_t *queue) { *queue = family * 16 + number + 1; }

typedef struct { head head; uint32_t flags, family; } pool_info;

int vkCreateCommandPool(uintptr_t device, const pool_info *info, void *allocator, uint64_t *pool) {
    MUST(info->head.type == POOL_INFO);
    *pool = info->family + 1;
    return SUCCESS;
}

void vkDestroyCommandPool(uintptr_t device, uint64_t pool, void *allocator) { MUST(pool); }

typedef struct { head head; uint64_t pool; } commands_info;

int vkAllocateCommandBuffers(uintptr_t device, const commands_info *info, commands **to) {
    MUST(info->head.type == COMMANDS_INFO && info->pool);
    *to = calloc(1, sizeof **to);
    (*to)->family = info->pool - 1;
    return SUCCESS;
}

int vkCreateFence(uintptr_t device, const head *info, void *allocator, fence **to) {
    MUST(info->type == FENCE_INFO);
    *to = calloc(1, sizeof **to);
    return SUCCESS;
}

void vkDestroyFence(uintptr_t device, fence *old, void *allocator) { free(old); }

int vkBeginCommandBuffer(commands *on, const head *info) {
    MUST(info->type == BEGIN_INFO && on->state != 1);
    *on = (commands){.state = 1, .family = on->family};
    return SUCCESS;
}

void vkCmdPipelineBarrier(commands *on, uint32_t after, uint32_t before, uint32_t flags, uint32_t count, const head *barrier,
                          uint32_t buffers, const void *b, uint32_t images, const void *i) {
    MUST(on->state == 1 && count == 1 && barrier->type == MEMORY_BARRIER && !buffers && !images);
    on->barriers++;
}

void vkCmdCopyBuffer(commands *on, buffer *from, buffer *to, uint32_t count, const uint64_t *region) {
    MUST(on->state == 1 && on->barriers == 1 && count == 1 && from != to && !region[0] && !region[1]);
    MUST(region[2] && region[2] <= from->bytes && region[2] <= to->bytes && from->in && to->in);
    on->from = from;
    on->to = to;
    on->bytes = region[2];
}

void vkCmdUpdateBuffer(commands *on, buffer *to, uint64_t at, uint64_t bytes, const void *data) {
    MUST(on->state == 1 && on->barriers == 1 && !at && bytes == 8 && bytes <= to->bytes && to->in);
    on->to = to;
    on->bytes = 8;
    memcpy(&on->word, data, 8);
}

int vkEndCommandBuffer(commands *on) {
    MUST(on->state == 1 && on->barriers == 2 && on->to);
    on->state = 2;
    return SUCCESS;
}

typedef struct { head head; uint32_t waits; const void *a, *b; uint32_t count; commands **commands; uint32_t signals; const void *c; } submit_info;

int vkQueueSubmit(uintptr_t queue, uint32_t count, const submit_info *info, fence *then) {
    MUST(count == 1 && info->head.type == SUBMIT_INFO && info->count == 1 && !then->is_set);
    commands *on = info->commands[0];
    int is_within = on->from && on->from->in->kind & LOCAL && on->to->in->kind & LOCAL;
    MUST(on->state == 2 && queue / 16 == on->family);
    MUST(is("one-queue") || on->family == (is_within ? COMPUTES : COPIES));
    MUST(is("one-queue") || on->to->is_shared && (!on->from || on->from->is_shared));
    uint64_t bytes = is("wrong") && on->bytes > 8 ? on->bytes - 8 : on->bytes;
    memcpy(on->to->in->device, on->from ? on->from->in->device : (char *)&on->word, bytes);
    on->state = 0;
    then->is_set = 1;
    return SUCCESS;
}

/* Lost in the middle: the command before was given, and never ends well. */
int vkWaitForFences(uintptr_t device, uint32_t count, fence **all, uint32_t every, uint64_t timeout) {
    static int finished;
    MUST(every && count && count <= 2);
    for (uint32_t i = 0; i < count; i++) MUST(all[i]->is_set);
    runs_for_ever = is("no-wait") && ++finished > 40;
    if (runs_for_ever) return NO_HOST_MEMORY;
    return is("lost") && ++finished > 40 ? DEVICE_LOST : SUCCESS;
}

int vkResetFences(uintptr_t device, uint32_t count, fence **all) {
    for (uint32_t i = 0; i < count; i++) all[i]->is_set = 0;
    return SUCCESS;
}

typedef struct { head head; uint32_t flags; uint64_t bytes; uint32_t usage, is_shared, families; const uint32_t *family; } buffer_info;

int vkCreateBuffer(uintptr_t device, const buffer_info *info, void *allocator, buffer **to) {
    MUST(info->head.type == BUFFER_INFO && info->bytes && info->usage == (TRANSFER_SRC | TRANSFER_DST));
    *to = calloc(1, sizeof **to);
    (*to)->bytes = info->bytes;
    (*to)->is_shared = info->is_shared && info->families == 2 && info->family[0] != info->family[1];
    return SUCCESS;
}

void vkDestroyBuffer(uintptr_t device, buffer *old, void *allocator) { MUST(!runs_for_ever); free(old); }

/* Buffers may not lie in the first of all types. */
void vkGetBufferMemoryRequirements(uintptr_t device, buffer *of, uint64_t *to) {
    to[0] = (of->bytes + 255) / 256 * 256;
    to[1] = 256;
    to[2] = ((1 << COUNT) - 1) & ~1;
}

typedef struct { head head; uint64_t bytes; uint32_t type; } allocate_info;

int vkAllocateMemory(uintptr_t device, const allocate_info *info, void *allocator, memory **to) {
    MUST(info->head.type == ALLOCATE_INFO && info->bytes % 256 == 0 && info->type > 0 && info->type < COUNT);
    int kind = TYPES[info->type], is_own = kind & VISIBLE && !(kind & COHERENT);
    MUST(!(kind & DEVICE_COHERENT));
    if (is("memory") && info->bytes > 4096) return NO_DEVICE_MEMORY;
    *to = calloc(1, sizeof **to);
    (*to)->bytes = info->bytes;
    (*to)->kind = kind;
    (*to)->device = aligned_alloc(4096, (info->bytes + 4095) / 4096 * 4096);
    (*to)->host = is_own || is("shadow") ? aligned_alloc(4096, (info->bytes + 4095) / 4096 * 4096) : (*to)->device;
    live(1);
    return SUCCESS;
}

void vkFreeMemory(uintptr_t device, memory *old, void *allocator) {
    MUST(!runs_for_ever);
    if (!old) return;
    if (old->host != old->device) free(old->host);
    free(old->device);
    free(old);
    live(-1);
}

int vkBindBufferMemory(uintptr_t device, buffer *of, memory *in, uint64_t at) {
    MUST(!at && !of->in && in->bytes >= of->bytes);
    of->in = in;
    return SUCCESS;
}

/* A driver that copies where it should share: when it maps and unmaps. */
int vkMapMemory(uintptr_t device, memory *of, uint64_t at, uint64_t bytes, uint32_t flags, void **to) {
    MUST(of->kind & VISIBLE && !of->is_mapped && !at && bytes == ~0ull);
    if (is("no-mapping")) return MAP_FAILED;
    of->is_mapped = 1;
    if (is("shadow")) memcpy(of->host, of->device, of->bytes);
    *to = of->host;
    return SUCCESS;
}

void vkUnmapMemory(uintptr_t device, memory *of) {
    MUST(of->is_mapped);
    of->is_mapped = 0;
    if (is("shadow")) memcpy(of->device, of->host, of->bytes);
}

typedef struct { head head; memory *of; uint64_t at, bytes; } range;

int vkFlushMappedMemoryRanges(uintptr_t device, uint32_t count, const range *all) {
    memory *of = all->of;
    MUST(count == 1 && all->head.type == RANGE && of->is_mapped && !(of->kind & COHERENT) && !all->at && all->bytes == ~0ull);
    if (!is("stale") || !of->flushes++) memcpy(of->device, of->host, of->bytes);
    return SUCCESS;
}

int vkInvalidateMappedMemoryRanges(uintptr_t device, uint32_t count, const range *all) {
    memory *of = all->of;
    MUST(count == 1 && all->head.type == RANGE && of->is_mapped && !(of->kind & COHERENT) && !all->at && all->bytes == ~0ull);
    memcpy(of->host, of->device, of->bytes);
    return SUCCESS;
}
