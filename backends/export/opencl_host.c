#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- the part of OpenCL that is used, as its standard declares it ------------------------------------------------- */

typedef struct { unsigned order, type; } image_format;
typedef struct {
    unsigned type;
    size_t width, height, depth, array_size, row_pitch, slice_pitch;
    unsigned mip_levels, samples;
    void *buffer;
} image_desc;

static int (*clGetPlatformIDs)(unsigned, void **, unsigned *);
static int (*clGetPlatformInfo)(void *, unsigned, size_t, void *, size_t *);
static int (*clGetDeviceIDs)(void *, uint64_t, unsigned, void **, unsigned *);
static int (*clGetDeviceInfo)(void *, unsigned, size_t, void *, size_t *);
static void *(*clCreateContext)(const intptr_t *, unsigned, void *const *, void *, void *, int *);
static void *(*clCreateCommandQueue)(void *, void *, uint64_t, int *);
static void *(*clCreateProgramWithSource)(void *, unsigned, const char **, const size_t *, int *);
static int (*clBuildProgram)(void *, unsigned, void *const *, const char *, void *, void *);
static int (*clGetProgramBuildInfo)(void *, void *, unsigned, size_t, void *, size_t *);
static void *(*clCreateKernel)(void *, const char *, int *);
static int (*clSetKernelArg)(void *, unsigned, size_t, const void *);
static void *(*clCreateBuffer)(void *, uint64_t, size_t, void *, int *);
static void *(*clCreateImage)(void *, uint64_t, const image_format *, const image_desc *, void *, int *);
static int (*clEnqueueWriteBuffer)(void *, void *, unsigned, size_t, size_t, const void *, unsigned, void *, void *);
static int (*clEnqueueReadBuffer)(void *, void *, unsigned, size_t, size_t, void *, unsigned, void *, void *);
static int (*clEnqueueCopyBufferToImage)(void *, void *, void *, size_t, const size_t *, const size_t *, unsigned, void *, void *);
static int (*clEnqueueNDRangeKernel)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned, void *, void *);
static int (*clFinish)(void *);

static void stop(const char *what, int code) {
    fprintf(stderr, "%s (%d)\n", what, code);
    exit(1);
}

static void check(int code, const char *what) {
    if (code) stop(what, code);
}

static void load_opencl(void) {
    const char *named = getenv("OPENCL_LIBRARY");
    void *library = dlopen(named ? named : "libOpenCL.so.1", RTLD_NOW);
    if (!library && !named) library = dlopen("libOpenCL.so", RTLD_NOW);
    if (!library) stop("there is no OpenCL library; install a driver, or name it in OPENCL_LIBRARY", 0);
#define LOAD(name) if (!(*(void **)&name = dlsym(library, #name))) stop("the OpenCL library has no " #name, 0)
    LOAD(clGetPlatformIDs); LOAD(clGetPlatformInfo); LOAD(clGetDeviceIDs); LOAD(clGetDeviceInfo);
    LOAD(clCreateContext); LOAD(clCreateCommandQueue); LOAD(clCreateProgramWithSource); LOAD(clBuildProgram); LOAD(clGetProgramBuildInfo);
    LOAD(clCreateKernel); LOAD(clSetKernelArg); LOAD(clCreateBuffer); LOAD(clCreateImage); LOAD(clEnqueueWriteBuffer);
    LOAD(clEnqueueReadBuffer); LOAD(clEnqueueCopyBufferToImage); LOAD(clEnqueueNDRangeKernel); LOAD(clFinish);
}

/* --- set up --------------------------------------------------------------------------------------------------------- */

enum { MEMORIES = sizeof memories / sizeof *memories, PROGRAMS = sizeof sources / sizeof *sources };

static void *context, *queue, *programs[PROGRAMS], *linear[MEMORIES], *images[MEMORIES];

/* A driver's text with single blanks, and none at its ends. */
static char *squeezed(char *text) {
    char *end = text;
    for (const char *next = text; *next; next++)
        if (!isspace((unsigned char)*next)) *end++ = *next;
        else if (end > text && end[-1] != ' ') *end++ = ' ';
    if (end > text && end[-1] == ' ') end--;
    *end = 0;
    return text;
}

/* Whether the kernels were tuned for the device, which goes by its driver's version where several drivers have it. */
static int is_meant(void *platform, void *device) {
    char name[256], version[256], both[520];
    if (clGetPlatformInfo(platform, 0x0902, sizeof name, name, NULL) || strcmp(squeezed(name), PLATFORM)) return 0;
    if (clGetDeviceInfo(device, 0x102B, sizeof name, name, NULL)) return 0;
    if (clGetDeviceInfo(device, 0x102D, sizeof version, version, NULL)) return 0;
    snprintf(both, sizeof both, "%s, driver %s", squeezed(name), squeezed(version));
    return !strcmp(name, DEVICE) || !strcmp(both, DEVICE);
}

/* The device that the kernels were tuned for, else the first one. */
static void *find_device(void) {
    void *platforms[16], *devices[16], *first = NULL;
    unsigned count = 0, found = 0;
    check(clGetPlatformIDs(16, platforms, &count), "no OpenCL platform");
    for (unsigned p = 0; p < count && p < 16; p++) {
        if (clGetDeviceIDs(platforms[p], 0xFFFFFFFF, 16, devices, &found)) continue;
        for (unsigned d = 0; d < found && d < 16; d++) {
            if (!first) first = devices[d];
            if (is_meant(platforms[p], devices[d])) return devices[d];
        }
    }
    if (!first) stop("no OpenCL device", 0);
    fprintf(stderr, "the kernels were tuned for %s of %s, which is not here; another device runs them\n", DEVICE,
            PLATFORM);
    return first;
}

static void build(void *device) {
    int code = 0;
    uint64_t floats = 0;
    if (clGetDeviceInfo(device, 0x101B, sizeof floats, &floats, NULL)) floats = 0;
    const char *options = floats & CORRECTLY_ROUNDED ? OPTIONS " " ROUNDED_OPTION : OPTIONS;
    for (int n = 0; n < PROGRAMS; n++) {
        const char *text = sources[n];
        programs[n] = clCreateProgramWithSource(context, 1, &text, NULL, &code);
        check(code, "clCreateProgramWithSource");
        code = clBuildProgram(programs[n], 1, &device, options, NULL, NULL);
        if (code) {
            static char log[1 << 16];
            clGetProgramBuildInfo(programs[n], device, 0x1183, sizeof log - 1, log, NULL);
            stop(log, code);
        }
    }
}

/* The bytes of a memory, or of the file that it goes with: as many as sizes decide, or these. */
static size_t bytes_of(int memory, size_t fixed) {
    size_t sized = sized_bytes(memory);
    return sized ? sized : fixed;
}

static void allocate(void) {
    int code = 0;
    for (int n = 0; n < MEMORIES; n++) {
        linear[n] = clCreateBuffer(context, 1, bytes_of(n, memories[n].bytes), NULL, &code);
        check(code, "clCreateBuffer");
        if (memories[n].channel) {
            image_format format = {0x10B5, memories[n].channel};
            image_desc desc = {0x10F1, memories[n].width, memories[n].height, 0, 0, 0, 0, 0, 0, NULL};
            images[n] = clCreateImage(context, 4, &format, &desc, NULL, &code);
            check(code, "clCreateImage");
        }
    }
}

/* --- run ------------------------------------------------------------------------------------------------------------ */

/* What a kernel reads as an image is copied there from linear memory. */
static void refresh(int memory) {
    size_t origin[3] = {0, 0, 0}, region[3] = {memories[memory].width, memories[memory].height, 1};
    if (images[memory])
        check(clEnqueueCopyBufferToImage(queue, linear[memory], images[memory], 0, origin, region, 0, NULL, NULL), "copy");
}

static void write_memory(int memory, const void *data, size_t bytes) {
    check(clEnqueueWriteBuffer(queue, linear[memory], 1, 0, bytes, data, 0, NULL, NULL), "clEnqueueWriteBuffer");
    refresh(memory);
}

#define RUN(table, n, global, count) run(programs[table[n].program], table[n].kernel, table[n].axes, global, \
                                         table[n].local, table[n].arguments, table[n].stale, count)

/* Launch a kernel, which takes so many sizes behind its memories. */
static void run(void *program, const char *name, unsigned axes, const size_t *global, const size_t *local,
                const int *arguments, const int *stale, unsigned sizes_taken) {
    int code = 0;
    void *kernel = clCreateKernel(program, name, &code);
    check(code, "clCreateKernel");
    for (; *stale != END; stale++) refresh(*stale);
    unsigned n = 0;
    for (; arguments[n] != END; n++) {
        int memory = arguments[n];
        void **handle = memory < 0 ? &images[-1 - memory] : &linear[memory];
        check(clSetKernelArg(kernel, n, sizeof *handle, handle), "clSetKernelArg");
    }
    for (unsigned k = 0; k < sizes_taken; k++)
        check(clSetKernelArg(kernel, n + k, sizeof *size, &size[k]), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, kernel, axes, NULL, global, local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
}

static void read_file(const char *path, int memory, size_t bytes) {
    char *data = malloc(bytes + 1);
    FILE *file = fopen(path, "rb");
    if (!data || !file || fread(data, 1, bytes + 1, file) != bytes) stop(path, (int)bytes);
    fclose(file);
    write_memory(memory, data, bytes);
    free(data);
}

static void write_file(const char *path, int memory, size_t bytes) {
    char *data = malloc(bytes + 1);
    FILE *file = fopen(path, "wb");
    if (!data || !file) stop(path, (int)bytes);
    check(clEnqueueReadBuffer(queue, linear[memory], 1, 0, bytes, data, 0, NULL, NULL), "clEnqueueReadBuffer");
    if (fwrite(data, 1, bytes, file) != bytes || fclose(file)) stop(path, (int)bytes);
    free(data);
}

static void read_size(int n, const char *text) {
    char *end = NULL;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < sizes[n].low || value > sizes[n].high || value % sizes[n].step) {
        fprintf(stderr, "%s must be one of %s, but is %s\n", sizes[n].name, sizes[n].range, text);
        exit(2);
    }
    size[n] = value;
}

int main(int count, char **paths) {
    int files = inputs_count + outputs_count;
    if (count != 1 + files + sizes_count) {
        fprintf(stderr, "usage: %s", paths[0]);
        for (int n = 0; n < inputs_count; n++) fprintf(stderr, " %s.bin", inputs[n].name);
        for (int n = 0; n < outputs_count; n++) fprintf(stderr, " %s.bin", outputs[n].name);
        for (int n = 0; n < sizes_count; n++) fprintf(stderr, " %s", sizes[n].name);
        fprintf(stderr, "\n");
        return 2;
    }
    for (int n = 0; n < sizes_count; n++) read_size(n, paths[1 + files + n]);
    int code = 0;
    load_opencl();
    void *device = find_device();
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    build(device);
    allocate();
    for (int n = 0; n < MEMORIES; n++)
        if (memories[n].data) write_memory(n, memories[n].data, memories[n].bytes);
    for (int n = 0; n < inputs_count; n++) read_file(paths[1 + n], inputs[n].memory, bytes_of(inputs[n].memory, inputs[n].bytes));
    for (int n = 0; n < prepare_count; n++) RUN(prepare, n, prepare[n].global, 0);
    for (int n = 0; n < MEMORIES; n++) refresh(n);
    for (int n = 0; n < compute_count; n++) {
        size_t global[3] = {compute[n].global[0], compute[n].global[1], compute[n].global[2]};
        if (grid(n, global)) RUN(compute, n, global, sizes_count);
    }
    check(clFinish(queue), "clFinish");
    for (int n = 0; n < outputs_count; n++)
        write_file(paths[1 + inputs_count + n], outputs[n].memory, bytes_of(outputs[n].memory, outputs[n].bytes));
    return 0;
}
