/* What a device does. `real` is double where it has that. */
#ifdef DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif

/* STREAM's arrays and loops: a work item for each element. */
kernel void fill(global real *restrict a, global real *restrict b, global real *restrict c, real x, real y, real z) {
    size_t i = get_global_id(0);
    a[i] = x;
    b[i] = y;
    c[i] = z;
}

kernel void copy(global real *restrict a, global const real *restrict b, global const real *restrict c, real s) {
    size_t i = get_global_id(0);
    a[i] = b[i];
}

kernel void scale(global real *restrict a, global const real *restrict b, global const real *restrict c, real s) {
    size_t i = get_global_id(0);
    a[i] = s * b[i];
}

kernel void add(global real *restrict a, global const real *restrict b, global const real *restrict c, real s) {
    size_t i = get_global_id(0);
    a[i] = b[i] + c[i];
}

kernel void triad(global real *restrict a, global const real *restrict b, global const real *restrict c, real s) {
    size_t i = get_global_id(0);
    a[i] = b[i] + s * c[i];
}

/* Reads words, whatever they are. */
kernel void words(global ulong *restrict to, global const ulong *restrict from) {
    size_t i = get_global_id(0);
    to[i] = from[i];
}

kernel void put(global ulong *to, ulong word) {
    to[0] = word;
}

/* Each load needs the one before: next[i] is the index of the place after i. */
kernel void chase(global const ulong *next, global ulong *at, ulong links) {
    ulong here = at[0];
    for (ulong link = 0; link < links; link++)
        here = next[here];
    at[0] = here;
}
