/* A layer between the OpenCL loader and its drivers that fails on request, to test what guards against that.

   OPENCL_LAYERS=libopencl_faults.so OPENCL_FAULT=KIND:FIRST:COUNT:FILE

   Calls of the kind's function are counted from 0 in FILE, which all processes share; those from FIRST on, COUNT of
   them, fail; pyopencl makes one that is short of memory a second time.  `device_gone` counts launches, and once it is
   due no function of the device works any more; `no_device` needs no counting: there is none.  Without OPENCL_FAULT
   the layer does nothing. */

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GET_DEVICE_IDS = 2, CREATE_CONTEXT = 4, CREATE_BUFFER = 14, BUILD_PROGRAM = 30, FINISH = 47, ENQUEUE_KERNEL = 59,
       SVM_ALLOC = 126 };
enum { DEVICE_NOT_FOUND = -1, DEVICE_NOT_AVAILABLE = -2, ALLOCATION_FAILURE = -4, OUT_OF_RESOURCES = -5,
       INVALID_VALUE = -30 };
enum { LAYER_API_VERSION = 0x4240, LAYER_NAME = 0x4241, API_VERSION_1 = 100 };

static void *table[512];
static void *const *target;
static char kind[32];
static uint64_t first, count, own, *calls = &own;

static void settle(void) {
    const char *text = getenv("OPENCL_FAULT");
    char file[512];
    unsigned long long from = 0, times = 0;
    if (text == NULL || sscanf(text, "%31[^:]:%llu:%llu:%511s", kind, &from, &times, file) != 4) {
        kind[0] = 0;
        return;
    }
    first = from, count = times;
    int handle = open(file, O_RDWR | O_CREAT, 0600);
    if (handle >= 0 && ftruncate(handle, sizeof *calls) == 0) {
        void *shared = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
        if (shared != MAP_FAILED) calls = shared;
    }
    if (handle >= 0) close(handle);
}

static int is(const char *name) { return strcmp(kind, name) == 0; }

/* Whether the call that is counted now is one of those that fail. */
static int due(void) { return __atomic_fetch_add(calls, 1, __ATOMIC_SEQ_CST) - first < count; }

/* Whether the device has gone for good, or was never there. */
static int gone(void) {
    return is("no_device") || (is("device_gone") && __atomic_load_n(calls, __ATOMIC_SEQ_CST) > first);
}

static void hang(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (;;) sleep(3600);
}

/* A driver may handle the signal, as PoCL does. */
static void crash(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

typedef int (*devices_call)(void *, uint64_t, uint32_t, void *, uint32_t *);
typedef void *(*context_call)(const void *, uint32_t, const void *, void *, void *, int *);
typedef void *(*buffer_call)(void *, uint64_t, size_t, void *, int *);
typedef void *(*svm_call)(void *, uint64_t, size_t, uint32_t);
typedef int (*build_call)(void *, uint32_t, const void *, const char *, void *, void *);
typedef int (*finish_call)(void *);
typedef int (*launch_call)(void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                           const void *, void *);

static int get_devices(void *platform, uint64_t type, uint32_t entries, void *devices, uint32_t *found) {
    if (gone()) {
        if (found) *found = 0;
        return DEVICE_NOT_FOUND;
    }
    return ((devices_call)target[GET_DEVICE_IDS])(platform, type, entries, devices, found);
}

static void *create_context(const void *properties, uint32_t devices, const void *list, void *notify, void *data,
                            int *error) {
    if (gone()) {
        if (error) *error = DEVICE_NOT_AVAILABLE;
        return NULL;
    }
    return ((context_call)target[CREATE_CONTEXT])(properties, devices, list, notify, data, error);
}

static void *create_buffer(void *context, uint64_t flags, size_t size, void *host, int *error) {
    if (is("no_memory") && due()) {
        if (error) *error = ALLOCATION_FAILURE;
        return NULL;
    }
    return ((buffer_call)target[CREATE_BUFFER])(context, flags, size, host, error);
}

static void *svm_alloc(void *context, uint64_t flags, size_t size, uint32_t alignment) {
    if (is("no_memory") && due()) return NULL;
    return ((svm_call)target[SVM_ALLOC])(context, flags, size, alignment);
}

static int build(void *program, uint32_t devices, const void *list, const char *options, void *notify, void *data) {
    if (is("build_hangs") && due()) hang();
    if (is("build_crashes") && due()) crash();
    if (is("build_aborts") && due()) abort();
    if (is("build_resources") && due()) return OUT_OF_RESOURCES;
    return ((build_call)target[BUILD_PROGRAM])(program, devices, list, options, notify, data);
}

static int finish(void *queue) {
    if (gone() || (is("lost_at_finish") && due())) return DEVICE_NOT_AVAILABLE;
    if (is("finish_hangs") && due()) hang();
    return ((finish_call)target[FINISH])(queue);
}

static int launch(void *queue, void *kernel, uint32_t dims, const size_t *offset, const size_t *global,
                  const size_t *local, uint32_t waits, const void *list, void *event) {
    if (is("out_of_resources") && due()) return OUT_OF_RESOURCES;
    if ((is("device_lost") && due()) || (is("device_gone") && due())) return DEVICE_NOT_AVAILABLE;
    if (is("launch_crashes") && due()) crash();
    return ((launch_call)target[ENQUEUE_KERNEL])(queue, kernel, dims, offset, global, local, waits, list, event);
}

int clGetLayerInfo(uint32_t what, size_t size, void *value, size_t *needed) {
    static const char name[] = "opencl_faults";
    const uint32_t version = API_VERSION_1;
    const void *found = what == LAYER_NAME ? (const void *)name : &version;
    const size_t bytes = what == LAYER_NAME ? sizeof name : sizeof version;
    if ((what != LAYER_NAME && what != LAYER_API_VERSION) || (value && size < bytes)) return INVALID_VALUE;
    if (value) memcpy(value, found, bytes);
    if (needed) *needed = bytes;
    return 0;
}

int clInitLayer(uint32_t entries, void *const *dispatch, uint32_t *own_entries, void *const **own_dispatch) {
    if (entries <= SVM_ALLOC || entries > sizeof table / sizeof *table) return INVALID_VALUE;
    settle();
    target = dispatch;
    memcpy(table, dispatch, entries * sizeof *table);
    table[GET_DEVICE_IDS] = (void *)get_devices;
    table[CREATE_CONTEXT] = (void *)create_context;
    table[CREATE_BUFFER] = (void *)create_buffer;
    table[SVM_ALLOC] = (void *)svm_alloc;
    table[BUILD_PROGRAM] = (void *)build;
    table[FINISH] = (void *)finish;
    table[ENQUEUE_KERNEL] = (void *)launch;
    *own_entries = entries;
    *own_dispatch = table;
    return 0;
}
