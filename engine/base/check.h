// STRATA_CHECK: invariants of our own. A broken one is a bug in Strata, never a user's mistake: the
// program prints the values and aborts.
#pragma once

#include <sstream>

namespace strata::internal {

/// Collects the message of a failed check; its destructor prints it and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

/// Gives both arms of the conditional in STRATA_CHECK the type void.
struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace strata::internal

/// `STRATA_CHECK(a == b) << a << " against " << b;` The message is evaluated only on failure.
#define STRATA_CHECK(condition)                 \
  (condition) ? (void)0                         \
              : ::strata::internal::Voidify() & \
                    ::strata::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
