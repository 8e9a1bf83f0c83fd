// STRATA_CHECK: checks an invariant of our own code. A failed check is a bug in Strata, never a
// user's mistake. The program then prints the condition and the message, and aborts.
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

/// `STRATA_CHECK(a == b) << a << " against " << b;` The message is evaluated only on failure. The
/// check runs in every build, optimised ones too.
#define STRATA_CHECK(condition)                 \
  (condition) ? (void)0                         \
              : ::strata::internal::Voidify() & \
                    ::strata::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
