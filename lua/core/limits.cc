#include "lua/core/limits.h"

#include <cstdlib>
#include <ctime>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::lua {
namespace {

/// The calling thread's time on a processor.
double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Limits::Limits(size_t memory_limit) : memory_limit_(memory_limit) { sem_init(&wake_, 0, 0); }

Limits::~Limits() { sem_destroy(&wake_); }

void* Limits::Reallocate(void* block, size_t old_size, size_t new_size) {
  if (block == nullptr) old_size = 0;
  if (new_size == 0) {
    std::free(block);
    memory_used_ -= old_size;
    return nullptr;
  }
  const size_t most = memory_limit_ + lent_;
  if (new_size > old_size && memory_used_ + (new_size - old_size) > most) return nullptr;
  void* result = std::realloc(block, new_size);
  if (result != nullptr) memory_used_ += new_size - old_size;
  return result;
}

bool Limits::Take(size_t bytes) {
  if (bytes > memory_limit_ || memory_used_ > memory_limit_ - bytes) return false;
  memory_used_ += bytes;
  return true;
}

void Limits::Begin(double seconds) {
  interrupted_.store(false, std::memory_order_relaxed);
  seconds_ = seconds;
  begin_ = ThreadSeconds();
}

void Limits::Interrupt() {
  interrupted_.store(true, std::memory_order_relaxed);
  sem_post(&wake_);
}

void Limits::AwaitInterrupt() {
  while (sem_wait(&wake_) != 0) {  // EINTR: a signal came first.
  }
}

void Limits::Wake() { sem_post(&wake_); }

std::string Limits::Reason() const {
  if (interrupted()) return "interrupted";
  if (seconds_ == 0 || ThreadSeconds() - begin_ < seconds_) return "";
  return Str("the script takes longer than ", FormatSeconds(seconds_),
             " of a processor's time before any training; --script_timeout=SECONDS gives it more");
}

void Limits::Poll() const {
  if (std::string reason = Reason(); !reason.empty()) throw ConfigError(reason);
}

}  // namespace strata::lua
