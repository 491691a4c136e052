/* An OpenCL loader with one device of its own, for tests: memory of the device's beside memory of the host's, so that mapping
   copies, but for USE_HOST_PTR on memory that begins with a page. FAKE_OPENCL chooses a fault; FAKE_OPENCL_LOG names a file that
   gets a line whenever more buffers live than ever before. With "svm" it has coarse-grained shared virtual memory, and refuses a buffer
   where a kernel was given such memory before, as NVIDIA's driver does (seen with 580.159.04). With "stale" nothing but the first write
   reaches a buffer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char *host, *device; size_t bytes; int owns_host, owns_device, writes; } buffer;
typedef struct { char name[16]; uint64_t argument[6]; uint32_t svm; int refuses; } kernel;

static int is(const char *mode) {
    const char *asked = getenv("FAKE_OPENCL");
    return asked && !strcmp(asked, mode);
}

static int is_lost(buffer *to) { return is("stale") && to->writes++; }

static void live(int change) {
    static int now, most;
    const char *path = getenv("FAKE_OPENCL_LOG");
    now += change;
    if (now <= most || !path) return;
    most = now;
    FILE *log = fopen(path, "a");
    if (log) { fprintf(log, "%d\n", most); fclose(log); }
}

static int tell(const void *what, size_t bytes, size_t room, void *to, size_t *length) {
    if (bytes > room) return -30;
    memcpy(to, what, bytes);
    *length = bytes;
    return 0;
}

int clGetPlatformIDs(uint32_t room, uintptr_t *to, uint32_t *count) {
    while (is("hang")) pause();
    if (is("no-platform")) return -1001;
    *to = 1; *count = 1;
    return 0;
}

int clGetPlatformInfo(uintptr_t platform, uint32_t what, size_t room, void *to, size_t *length) {
    return tell("Fake", 5, room, to, length);
}

int clGetDeviceIDs(uintptr_t platform, uint64_t kind, uint32_t room, uintptr_t *to, uint32_t *count) {
    if (is("crash")) abort();
    if (is("no-device")) return -1;
    to[0] = 1; to[1] = 2; *count = is("two") ? 2 : 1;
    return 0;
}

int clGetDeviceInfo(uintptr_t device, uint32_t what, size_t room, void *to, size_t *length) {
    uint64_t gib = 1 << 30, largest = is("small-buffers") ? 32 << 20 : gib, gpu = 4, yes = 63, coarse = is("svm");
    uint32_t units = 8, pci[4] = {0, 0x3b, 0, 0};
    switch (what) {
    case 0x1000: return tell(&gpu, 8, room, to, length);
    case 0x1002: return tell(&units, 4, room, to, length);
    case 0x1010: return tell(&largest, 8, room, to, length);
    case 0x101f: return tell(&gib, 8, room, to, length);
    case 0x1032: return tell(&yes, 8, room, to, length);
    case 0x1053: return tell(&coarse, 8, room, to, length);
    case 0x410f: return tell(pci, 16, room, to, length);
    case 0x102b: return tell("Fake GPU", 9, room, to, length);
    case 0x102d: return tell("1.0", 4, room, to, length);
    case 0x102f: return tell("OpenCL 1.2 fake", 16, room, to, length);
    }
    return -30;
}

uintptr_t clCreateContext(void *p, uint32_t n, void *d, void *f, void *u, int *code) { *code = 0; return 1; }
int clReleaseContext(uintptr_t context) { return 0; }
uintptr_t clCreateCommandQueue(uintptr_t c, uintptr_t d, uint64_t p, int *code) { *code = 0; return 1; }
int clReleaseCommandQueue(uintptr_t queue) { return 0; }

int clFlush(uintptr_t queue) { return 0; }

int clFinish(uintptr_t queue) {
    static int finished;
    return is("lost") && ++finished > 20 ? -36 : 0;
}

buffer *clCreateBuffer(uintptr_t context, uint64_t flags, size_t bytes, void *host, int *code) {
    *code = is("memory") && bytes > 4096 ? -4 : is("small-buffers") && bytes > 32 << 20 ? -61 : 0;
    if (*code) return NULL;
    buffer *made = calloc(1, sizeof *made);
    int uses_host = (flags & 8) != 0, is_shared = uses_host && (uintptr_t)host % 4096 == 0;
    made->bytes = bytes;
    made->owns_host = !uses_host;
    made->owns_device = !is_shared;
    made->host = uses_host ? host : malloc(bytes);
    made->device = is_shared ? host : malloc(bytes);
    if (host && !is_shared) memcpy(made->device, host, bytes);
    live(1);
    return made;
}

int clReleaseMemObject(buffer *old) {
    if (old->owns_host) free(old->host);
    if (old->owns_device) free(old->device);
    free(old);
    live(-1);
    return 0;
}

void *clEnqueueMapBuffer(uintptr_t q, buffer *b, uint32_t blocking, uint64_t flags, size_t at, size_t bytes, uint32_t n, void *w, void *e, int *code) {
    *code = 0;
    if (b->owns_device && !(flags & 4)) memcpy(b->host, b->device, b->bytes);
    return b->host;
}

int clEnqueueUnmapMemObject(uintptr_t q, buffer *b, void *at, uint32_t n, void *w, void *e) {
    if (b->owns_device && !is_lost(b)) memcpy(b->device, b->host, b->bytes);
    return 0;
}

int clEnqueueReadBuffer(uintptr_t q, buffer *b, uint32_t blocking, size_t at, size_t bytes, void *to, uint32_t n, void *w, void *e) {
    memcpy(to, b->device + at, bytes);
    return 0;
}

int clEnqueueWriteBuffer(uintptr_t q, buffer *b, uint32_t blocking, size_t at, size_t bytes, const void *from, uint32_t n, void *w, void *e) {
    if (!is_lost(b)) memcpy(b->device + at, from, bytes);
    return 0;
}

int clEnqueueCopyBuffer(uintptr_t q, buffer *from, buffer *to, size_t a, size_t b, size_t bytes, uint32_t n, void *w, void *e) {
    memcpy(to->device + b, from->device + a, bytes);
    return 0;
}

uintptr_t clCreateProgramWithSource(uintptr_t c, uint32_t n, const char **lines, const size_t *lengths, int *code) { *code = 0; return 1; }
int clBuildProgram(uintptr_t p, uint32_t n, void *d, const char *options, void *f, void *u) { return is("no-compiler") ? -11 : 0; }
int clReleaseProgram(uintptr_t program) { return 0; }

int clGetProgramBuildInfo(uintptr_t p, uintptr_t d, uint32_t what, size_t room, void *to, size_t *length) {
    return tell("line 1: no", 11, room, to, length);
}

kernel *clCreateKernel(uintptr_t program, const char *name, int *code) {
    kernel *made = calloc(1, sizeof *made);
    strncpy(made->name, name, sizeof made->name - 1);
    *code = 0;
    return made;
}

void *clSVMAlloc(uintptr_t context, uint64_t flags, size_t bytes, uint32_t alignment) { live(1); return malloc(bytes); }
void clSVMFree(uintptr_t context, void *old) { live(-1); free(old); }
int clEnqueueSVMMap(uintptr_t q, uint32_t b, uint64_t f, void *at, size_t bytes, uint32_t n, void *w, void *e) { return 0; }
int clEnqueueSVMUnmap(uintptr_t q, void *at, uint32_t n, void *w, void *e) { return 0; }

int clEnqueueSVMMemcpy(uintptr_t q, uint32_t b, void *to, const void *from, size_t bytes, uint32_t n, void *w, void *e) {
    memcpy(to, from, bytes);
    return 0;
}

int clSetKernelArgSVMPointer(kernel *k, uint32_t index, const void *at) {
    k->argument[index] = (uintptr_t)at;
    k->svm |= 1u << index;
    return 0;
}

int clSetKernelArg(kernel *k, uint32_t index, size_t bytes, const void *value) {
    memcpy(&k->argument[index], value, bytes);
    if (k->svm >> index & 1) k->refuses = 1;
    return 0;
}

static char *memory(const kernel *k, uint32_t index) {
    return k->svm >> index & 1 ? (char *)k->argument[index] : ((buffer *)k->argument[index])->device;
}

int clEnqueueNDRangeKernel(uintptr_t q, kernel *k, uint32_t d, void *o, const size_t *items, void *g, uint32_t n, void *w, void *e) {
    if (k->refuses) return -52;
    double *a = (double *)memory(k, 0), s;
    uint64_t *words = (uint64_t *)a;
    memcpy(&s, &k->argument[3], 8);
    if (!strcmp(k->name, "put")) { words[0] = k->argument[1]; return 0; }
    const double *b = (double *)memory(k, 1);
    if (!strcmp(k->name, "words")) { memcpy(words, b, 8 * *items); return 0; }
    if (!strcmp(k->name, "chase")) {
        uint64_t *at = (uint64_t *)b;
        for (uint64_t link = 0; link < k->argument[2]; link++) *at = words[*at];
        return 0;
    }
    double *c = (double *)memory(k, 2);
    if (!strcmp(k->name, "fill")) {
        double *all[] = {a, (double *)b, c}, value[3];
        memcpy(value, &k->argument[3], sizeof value);
        for (int array = 0; array < 3; array++)
            for (size_t i = 0; i < *items; i++) all[array][i] = value[array];
        return 0;
    }
    const double off = is("wrong") && !strcmp(k->name, "triad");
    /* copy, scale, add, triad: how much of b and of c. */
    const double of_b = strcmp(k->name, "scale") ? 1 : s;
    const double of_c = !strcmp(k->name, "add") ? 1 : !strcmp(k->name, "triad") ? s : 0;
    for (size_t i = 0; i < *items; i++) a[i] = of_b * b[i] + of_c * c[i] + off;
    return 0;
}

int clReleaseKernel(kernel *old) { free(old); return 0; }
