// Preloaded into the workers of a chaos run: simulates a wall clock that jumps and disks that are full. It needs no root and does
// not touch the machine's own clock or disks. Every process maps the same control file, so a change takes effect in all processes at once.
// The monotonic clock does not change, as when an operator or NTP sets a real clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// libc-shim.ts writes each field at the offset given here.
struct control {
  volatile int64_t clock_offset_s;  // 0: the node's processes
  volatile int32_t node_full;       // 8: the node's folder
  volatile int32_t store_full;      // 12: the store's folder, for every worker
};

static struct control *control;
static int on_node;
static const char *node_folder, *store_folder;

__attribute__((constructor)) static void map_control(void) {
  const char *path = getenv("LONGHAUL_SHIM_CONTROL");
  char command[4096] = {0};
  const int commands = open("/proc/self/cmdline", O_RDONLY);
  if (path == NULL || commands < 0) return;
  const ssize_t length = read(commands, command, sizeof command - 1);
  close(commands);
  int on_worker = 0;
  for (ssize_t at = 0; at < length; at += (ssize_t)strlen(command + at) + 1) {
    if (strstr(command + at, "node-main") || strstr(command + at, "longhaul-engine")) on_node = on_worker = 1;
    if (strstr(command + at, "orchestrator-main")) on_worker = 1;
  }
  if (!on_worker) return;
  node_folder = getenv("LONGHAUL_SHIM_NODE_FOLDER");
  store_folder = getenv("LONGHAUL_SHIM_STORE_FOLDER");
  const int file = open(path, O_RDONLY);
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) control = mapped;
}

#define REAL(result, name, ...)                          \
  static result (*real)(__VA_ARGS__);                    \
  if (real == NULL) real = dlsym(RTLD_NEXT, #name)

static int64_t offset(void) { return control && on_node ? control->clock_offset_s : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(int, clock_gettime, clockid_t, struct timespec *);
  const int answer = real(clock, now);
  if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  REAL(int, gettimeofday, struct timeval *, void *);
  const int answer = real(now, zone);
  if (answer == 0) now->tv_sec += offset();
  return answer;
}

time_t time(time_t *out) {
  REAL(time_t, time, time_t *);
  const time_t now = real(NULL) + offset();
  if (out) *out = now;
  return now;
}

static int below(const char *path, const char *folder) {
  const size_t length = folder ? strlen(folder) : 0;
  return length > 0 && strncmp(path, folder, length) == 0 && path[length] == '/';
}

static int no_space(const char *path) {
  if (control == NULL || path == NULL) return 0;
  const int full = (on_node && control->node_full && below(path, node_folder)) ||
                   (control->store_full && below(path, store_folder));
  if (full) errno = ENOSPC;
  return full;
}

static int no_space_behind(int file) {
  if (control == NULL || !(control->node_full || control->store_full)) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return no_space(path);
}

#define OPEN(name)                                                          \
  int name(const char *path, int flags, ...) {                              \
    REAL(int, name, const char *, int, ...);                                \
    va_list more;                                                           \
    va_start(more, flags);                                                  \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                           \
    if ((flags & O_CREAT) && access(path, F_OK) != 0 && no_space(path)) return -1; \
    return real(path, flags, mode);                                         \
  }
OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
  REAL(int, mkdir, const char *, mode_t);
  // A folder that already exists takes no space.
  if (access(path, F_OK) != 0 && no_space(path)) return -1;
  return real(path, mode);
}

int link(const char *from, const char *to) {
  REAL(int, link, const char *, const char *);
  return no_space(to) ? -1 : real(from, to);
}

#define WRITE(name, parameters, types, arguments)    \
  ssize_t name parameters {                          \
    REAL(ssize_t, name, types);                      \
    return no_space_behind(file) ? -1 : real arguments; \
  }
#define LIST(...) __VA_ARGS__
WRITE(write, (int file, const void *bytes, size_t size), LIST(int, const void *, size_t), (file, bytes, size))
WRITE(pwrite, (int file, const void *bytes, size_t size, off_t at), LIST(int, const void *, size_t, off_t),
      (file, bytes, size, at))
WRITE(pwrite64, (int file, const void *bytes, size_t size, off64_t at), LIST(int, const void *, size_t, off64_t),
      (file, bytes, size, at))
WRITE(writev, (int file, const struct iovec *pieces, int count), LIST(int, const struct iovec *, int),
      (file, pieces, count))
WRITE(pwritev, (int file, const struct iovec *pieces, int count, off_t at),
      LIST(int, const struct iovec *, int, off_t), (file, pieces, count, at))
WRITE(pwritev64, (int file, const struct iovec *pieces, int count, off64_t at),
      LIST(int, const struct iovec *, int, off64_t), (file, pieces, count, at))
