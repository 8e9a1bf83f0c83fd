// A clock that jumps, for LD_PRELOAD: the time of day is $STRATA_CLOCK's number of seconds ahead,
// which a test changes while the program runs; so are the times that files are touched at. The
// monotonic clock goes on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t Ahead(void) {
  static volatile const int64_t* ahead;
  if (!ahead) {
    const char* path = getenv("STRATA_CLOCK");
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void* memory = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) abort();
    ahead = memory;
    close(fd);
  }
  return *ahead;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += Ahead();
  return result;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

int futimens(int fd, const struct timespec times[2]) {
  static int (*real)(int, const struct timespec*);
  if (!real) real = (int (*)(int, const struct timespec*))dlsym(RTLD_NEXT, "futimens");
  if (times) return real(fd, times);
  struct timespec now[2];
  clock_gettime(CLOCK_REALTIME, &now[0]);
  now[1] = now[0];
  return real(fd, now);
}
