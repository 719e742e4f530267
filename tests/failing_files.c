/* Loaded with LD_PRELOAD, it lets calls on files below a folder fail, whoever makes them: Python, Rust or C++. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, CUT = 16, CLOSE = 32, RENAME = 64, MAKE = 128, REMOVE = 256, MODE = 512 };
enum { SHORT = -1, KILL = -2 }; /* besides the numbers of errors */

struct fault { /* failing_files.py has the same */
    int calls;    /* which may fail, as a sum of the numbers above */
    int error;    /* what they fail with */
    int lasting;  /* all after the first one fail, too */
    long number;  /* the first call that fails, from 1; 0: none */
    long count;   /* calls so far */
    char folder[PATH_MAX];
    char failed[PATH_MAX]; /* the path of the first call that failed */
};

static struct fault *fault;

/* Returns memory that forks share. The library owns it, because threads and exit handlers make calls to the very end of a
   process, when Python has already released what it holds. */
struct fault *shared_fault(void) {
    void *memory = mmap(NULL, sizeof(struct fault), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void arm(struct fault *given) { fault = given; }

static int below(const char *path) {
    size_t length = strlen(fault->folder);
    return !strncmp(path, fault->folder, length) && (path[length] == '/' || !path[length]);
}

static int fails(int call, const char *path) {
    if (!fault || !(fault->calls & call) || !below(path)) return 0;
    long number = __atomic_add_fetch(&fault->count, 1, __ATOMIC_SEQ_CST);
    if (!fault->number || number < fault->number || (number > fault->number && !fault->lasting)) return 0;
    if (number == fault->number) snprintf(fault->failed, sizeof fault->failed, "%s", path);
    if (fault->error == KILL && call != WRITE) kill(getpid(), SIGKILL);
    errno = fault->error;
    return 1;
}

static const char *path_of(int fd, char *buffer) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, buffer, PATH_MAX - 1);
    buffer[length < 0 ? 0 : length] = 0;
    return buffer;
}

static const char *full(int folder, const char *path, char *buffer) {
    if (path[0] == '/') return path;
    if (folder == AT_FDCWD) {
        if (!getcwd(buffer, PATH_MAX)) return path;
    } else {
        path_of(folder, buffer);
    }
    size_t length = strlen(buffer);
    snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    return buffer;
}

static int fd_fails(int call, int fd) {
    char buffer[PATH_MAX];
    return fault && fails(call, path_of(fd, buffer));
}

static int path_fails(int call, int folder, const char *path) {
    char buffer[PATH_MAX];
    return fault && fails(call, full(folder, path, buffer));
}

/* Returns how many of `length` bytes the call may still write: -1 where it fails. */
static ssize_t room(int fd, ssize_t length) {
    if (!fd_fails(WRITE, fd)) return length;
    return fault->error == SHORT || fault->error == KILL ? (length > 1 ? length / 2 : length) : -1;
}

static ssize_t written(ssize_t result) {
    if (fault && fault->error == KILL && fault->number && fault->count >= fault->number) kill(getpid(), SIGKILL);
    return result;
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        int call = flags & (O_WRONLY | O_RDWR | O_CREAT) ? OPEN : READ; \
        return path_fails(call, AT_FDCWD, path) ? -1 : real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        int call = flags & (O_WRONLY | O_RDWR | O_CREAT) ? OPEN : READ; \
        return path_fails(call, folder, path) ? -1 : real(folder, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t read(int fd, void *data, size_t length) {
    REAL(ssize_t, "read", int, void *, size_t);
    return fd_fails(READ, fd) ? -1 : real(fd, data, length);
}

ssize_t write(int fd, const void *data, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    ssize_t some = room(fd, length);
    return some < 0 ? -1 : written(real(fd, data, some));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    ssize_t some = room(fd, SSIZE_MAX);
    if (some == SSIZE_MAX) return real(fd, parts, count);
    if (some < 0) return -1;
    struct iovec half = {parts[0].iov_base, parts[0].iov_len > 1 ? parts[0].iov_len / 2 : parts[0].iov_len};
    return written(real(fd, &half, 1));
}

#define WRITES_AT(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t length, offset_type offset) { \
        REAL(ssize_t, #name, int, const void *, size_t, offset_type); \
        ssize_t some = room(fd, length); \
        return some < 0 ? -1 : written(real(fd, data, some, offset)); \
    }
WRITES_AT(pwrite, off_t)
WRITES_AT(pwrite64, off64_t)

#define OF_FD(name, call) \
    int name(int fd) { \
        REAL(int, #name, int); \
        return fd_fails(call, fd) ? -1 : real(fd); \
    }
OF_FD(fsync, SYNC)
OF_FD(fdatasync, SYNC)

int close(int fd) { /* the file is closed even where the call fails */
    REAL(int, "close", int);
    int call = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ? READ : CLOSE;
    int failed = fd_fails(call, fd), error = errno, result = real(fd);
    if (failed) errno = error;
    return failed ? -1 : result;
}

#define CUTS(name, offset_type) \
    int name(int fd, offset_type length) { \
        REAL(int, #name, int, offset_type); \
        return fd_fails(CUT, fd) ? -1 : real(fd, length); \
    }
CUTS(ftruncate, off_t)
CUTS(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return path_fails(RENAME, AT_FDCWD, to) ? -1 : real(from, to);
}

int renameat(int one, const char *from, int other, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    return path_fails(RENAME, other, to) ? -1 : real(one, from, other, to);
}

int symlink(const char *target, const char *path) {
    REAL(int, "symlink", const char *, const char *);
    return path_fails(MAKE, AT_FDCWD, path) ? -1 : real(target, path);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    return path_fails(REMOVE, folder, path) ? -1 : real(folder, path, flags);
}

#define OF_PATH(name, call) \
    int name(const char *path) { \
        REAL(int, #name, const char *); \
        return path_fails(call, AT_FDCWD, path) ? -1 : real(path); \
    }
OF_PATH(unlink, REMOVE)
OF_PATH(rmdir, REMOVE)

#define OF_PATH_AND_MODE(name, call) \
    int name(const char *path, mode_t mode) { \
        REAL(int, #name, const char *, mode_t); \
        return path_fails(call, AT_FDCWD, path) ? -1 : real(path, mode); \
    }
OF_PATH_AND_MODE(mkdir, MAKE)
OF_PATH_AND_MODE(chmod, MODE)
