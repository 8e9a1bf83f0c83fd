#include "lua/limits.h"

#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::lua {

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
  deadline_.reset();
  if (seconds > 0) {
    deadline_ = Clock::now() +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
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
  if (!deadline_ || Clock::now() < *deadline_) return "";
  return Str("the script takes longer than ", FormatSeconds(seconds_), " before any training");
}

void Limits::Poll() const {
  if (std::string reason = Reason(); !reason.empty()) throw ConfigError(reason);
}

}  // namespace strata::lua
