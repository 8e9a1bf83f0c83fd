// For tests: simulates a full disk with the limit of file sizes (RLIMIT_FSIZE).
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>

#include "engine/base/check.h"

namespace strata {

/// While an object lives, no file of this process can grow beyond `bytes`: a write fails with
/// EFBIG.
class FullDisk {
 public:
  explicit FullDisk(size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    STRATA_CHECK(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    STRATA_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*const handler_)(int);
  rlimit before_;
};

}  // namespace strata
